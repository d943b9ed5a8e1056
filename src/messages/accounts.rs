//! Accounts: limits, cool-downs and fail-over order.

use std::collections::{BTreeMap, BTreeSet};

use ractor::RpcReplyPort;

use crate::domain::accounts::{Admission, Lesson, Outage};
use crate::domain::ids::Token;
use crate::domain::ledger::{Money, Reservation};
use crate::domain::state::Account;

/// What Accounts receives.
#[derive(Debug)]
pub enum AccountsMsg {
    /// Session: may a call begin?
    Admit(Admit),
    /// Session: what an attempt showed.
    Learned {
        /// The provider whose account that is.
        account: String,
        /// What that is.
        lesson: Lesson,
    },
    /// Session: a person says that these work which are out until a person says so.
    Readmit {
        /// The provider chain.
        chain: Vec<String>,
    },
    /// Session: the money that was set aside for this call is not needed.
    Release {
        /// The call that does not begin.
        token: Token,
    },
    /// Session: calls have ended that the ledger may not know of. It hears of them when there is time.
    Book,
    /// Accounts, from its timer: there is time now.
    BookNow,
    /// Project: no call begins any more; what has ended is to be booked.
    Close(RpcReplyPort<()>),
    /// Accounts, from its timer: it still tries an account.
    Renew,
    /// Accounts, from its blocking thread: a job is over.
    JobDone(Box<crate::actors::accounts::Desk>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// May a call begin?
#[derive(Debug)]
pub struct Admit {
    /// The provider chain, primary first.
    pub chain: Vec<String>,
    /// The one in use.
    pub active: usize,
    /// What the session knows, what is still to be committed included.
    pub known: BTreeMap<String, Account>,
    /// Those whose servers do not answer: called only where there is no other.
    pub unreachable: BTreeSet<String>,
    /// Money that is to be set aside together with that.
    pub money: Option<Box<Reservation>>,
    /// The answer.
    pub reply: RpcReplyPort<Admitted>,
}

/// The answer.
#[derive(Debug)]
pub struct Admitted {
    /// May it?
    pub admission: Admission,
    /// Accounts of which others have learned that they are to be left alone, by provider.
    pub news: Vec<(String, Outage)>,
    /// What the ledger says, where it was asked and the call may begin otherwise.
    pub money: Option<Money>,
}
