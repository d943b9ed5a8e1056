//! The system calls that need `unsafe`, wrapped so that nothing else here does.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Which side of a fork this is.
pub(super) enum Forked {
    /// The parent, with the child's pid.
    Parent(u32),
    /// The child.
    Child,
}

/// One reaped child.
pub(super) struct Reaped {
    /// Its pid, free for reuse from now on.
    pub(super) pid: u32,
    /// Raw wait status.
    pub(super) status: i32,
    /// CPU time of it and of the children that it waited for.
    pub(super) cpu: Duration,
}

/// What a look at our own children found.
pub(super) enum Wait {
    /// One had ended.
    Reaped(Reaped),
    /// Some are alive, none has ended.
    Alive,
    /// There is none.
    Childless,
}

/// `fork(2)`.
///
/// # Safety
/// The calling process must have exactly one thread: then every lock is free in the child and it may do anything.
pub(super) unsafe fn fork() -> io::Result<Forked> {
    // SAFETY: single-threaded by the contract of this function.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid.cast_unsigned())),
    }
}

/// Looks for a child that has ended, without waiting.
pub(super) fn wait_any() -> Wait {
    let mut status: c_int = 0;
    // SAFETY: an all-zero rusage is a valid value of a plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live locals of the right types.
        match unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) } {
            0 => return Wait::Alive,
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Wait::Childless,
            pid => {
                let cpu = timeval(usage.ru_utime) + timeval(usage.ru_stime);
                return Wait::Reaped(Reaped { pid: pid.cast_unsigned(), status, cpu });
            }
        }
    }
}

fn timeval(t: libc::timeval) -> Duration {
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_usec).unwrap_or(0) * 1000)
}

/// Sends a signal by number to a pid that cannot have been reused: an unreaped child of ours.
pub(super) fn kill(pid: u32, signal: c_int) {
    let Ok(pid) = i32::try_from(pid) else { return };
    if pid > 0 {
        // SAFETY: kill touches no memory.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Makes a keeper deaf to what a terminal or a service manager sends, and returns a descriptor that is readable when
/// a child has ended.
///
/// Every signal is blocked, none is ignored: so an agent-to-be that has just been forked cannot miss a TERM (it is
/// delivered once unblocked), and programs find the default actions.
pub(super) fn keeper_signals() -> io::Result<OwnedFd> {
    // SAFETY: sigset_t is plain data that sigfillset initialises.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a live local, initialised by the first call; the old mask is not asked for.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
    default_actions();
    // SAFETY: sigset_t is plain data that sigemptyset initialises.
    let mut child: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `child` is a live local; the flags are constants of this call.
    let fd = unsafe {
        libc::sigemptyset(&raw mut child);
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        libc::signalfd(-1, &raw const child, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    owned(fd)
}

/// Gives every signal its default action, whatever was inherited or set by the runtime.
fn default_actions() {
    // The kernel's `struct sigaction` with everything zero: SIG_DFL, no flags, no mask. The C library's function
    // refuses its own two signals (32 and 33), which may be inherited as ignored like any other.
    let default = [0_u64; 4];
    for signal in 1..=64_i32 {
        // SAFETY: the kernel reads a struct of 32 bytes and a set of 8, and is asked to write nothing. No handler is
        // set. KILL and STOP are refused.
        unsafe {
            let no_old = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), no_old, size_of::<u64>());
        }
    }
}

/// Unblocks every signal, as a program expects to find them.
pub(super) fn unblock_signals() {
    // SAFETY: sigset_t is plain data that sigemptyset initialises.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `none` is a live local, initialised by the first call; the old mask is not asked for.
    unsafe {
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Makes `fd` also the standard descriptor `target` (0, 1 or 2), which stays open across `execve`.
pub(super) fn set_stdio(fd: &OwnedFd, target: RawFd) -> io::Result<()> {
    // SAFETY: dup2 touches no memory; `target` is a standard descriptor, which nothing here owns.
    match unsafe { libc::dup2(fd.as_raw_fd(), target) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A close-on-exec duplicate, numbered 3 or more, of a standard descriptor that this process was started with.
pub(super) fn dup_stdio(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with F_DUPFD_CLOEXEC touches no memory.
    owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })
}

/// Marks every descriptor from 3 on close-on-exec. All of ours are already; this covers inherited ones.
pub(super) fn cloexec_from_3() {
    // SAFETY: with CLOSE_RANGE_CLOEXEC no descriptor is closed. Unknown to the kernel before 5.11: then nothing happens.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// `execve(2)`; returns only when it failed.
pub(super) fn exec(path: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let argv = pointers(argv);
    let env = pointers(env);
    // SAFETY: the strings outlive the call, both lists end with a null pointer.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Makes the allocator of a process that lives for weeks give memory back: without this glibc keeps an arena for
/// each thread, and after the first large buffer was freed it keeps large buffers in those, too, and clears them
/// byte by byte when they are used again (mallopt(3)). To be called before there are threads.
pub fn return_memory() {
    #[cfg(target_env = "gnu")]
    {
        const ARENAS: c_int = 2;
        const MAPPED_FROM: c_int = 128 << 10;
        // SAFETY: mallopt only sets parameters of the allocator; what it does not know it refuses.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        }
    }
}

/// Gives back the pages of this program's file that were read only to start it (relocations above all), or for work
/// that is done seldom, and what it has freed since. The former come back from the page cache where they are needed again.
pub fn drop_startup_pages() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and glibc locks its arenas.
    unsafe {
        libc::malloc_trim(0);
    }
    // SAFETY: the callback has the type that is asked for and ignores its data.
    unsafe { libc::dl_iterate_phdr(Some(drop_read_only), std::ptr::null_mut()) };
}

/// Called for the program itself, which comes first; what it returns ends the walk before the libraries.
unsafe extern "C" fn drop_read_only(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut libc::c_void,
) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid pointer.
    let info = unsafe { &*info };
    // SAFETY: the loader's program headers are an array of this length, there as long as the program is.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let page = rustix::param::page_size() as u64;
    for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0) {
        // Whole pages of this segment alone: those at its ends may be shared with a writable one.
        let start = (info.dlpi_addr + header.p_vaddr).next_multiple_of(page);
        let end = (info.dlpi_addr + header.p_vaddr + header.p_memsz) / page * page;
        if let Ok(length) = usize::try_from(end.saturating_sub(start)) {
            let start = std::ptr::with_exposed_provenance_mut(start as usize);
            // SAFETY: these pages map the program's file without ever having been writable, so none differs from the
            // file, from which it is read again at the next access.
            unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
        }
    }
    1
}

/// Ends this process at once: no destructors, no flushing of buffers shared with the parent.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit touches no memory.
    unsafe { libc::_exit(code) }
}

fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
