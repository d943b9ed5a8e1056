//! The desk's share in the host's budget ledger: money is set aside with an admission, and booked when there is time.

use super::desk::{Desk, lives_here};
use crate::config::Config;
use crate::domain::accounts::{Admission, Lesson};
use crate::domain::ids::Token;
use crate::domain::ledger::{Money, Reservation, Window};
use crate::domain::status::WindowStatus;
use crate::store::{Caller, Found, Known, Reader};

impl Desk {
    /// Sets money aside for the call that is about to be admitted. Where that fails the admission is not used.
    pub(super) fn reserve(
        &mut self,
        ask: Option<&Reservation>,
        admission: &Admission,
        chain: &[String],
    ) -> Option<Money> {
        let (Admission::Granted(at) | Admission::Probe(at)) = admission else { return None };
        let (ask, provider) = (ask?, chain.get(*at)?);
        let account = self.ids(std::slice::from_ref(provider)).remove(provider);
        let (now, rehearsed, zone) =
            (self.ctx.now(), self.is_rehearsed(provider), crate::clock::local_zone());
        let money = self.with_host(/* make */ true, |host, holder| {
            let account = account.as_deref();
            host.reserve(Caller { holder, provider, account, rehearsed, zone: &zone }, ask, now)
        });
        let money = money.unwrap_or_else(|| Money::Unusable(self.why_not()));
        if !matches!(money, Money::Reserved { .. }) && matches!(admission, Admission::Probe(_)) {
            // Another session may find out whether the account works again.
            self.learned(provider, &Lesson::Nothing);
        }
        Some(money)
    }

    pub(super) fn release(&mut self, token: Token) {
        self.with_host(/* make */ false, |host, _| host.release(token));
    }

    /// Books what the project's journal has and the ledger has not. `closing`: no call begins any more.
    pub(super) fn book(&mut self, closing: bool) {
        let was_open = self.host.is_some();
        if self.ctx.home.is_some()
            && let Err(error) = self.try_book(closing)
        {
            // The next time makes up for it: the journal has it all.
            tracing::warn!(%error, "cannot read what calls have cost");
        }
        if !was_open && self.ctx.config().budget.windows().smallest().is_none() {
            // It is needed every few seconds at most: neither it nor the code that opens it is worth its memory.
            self.host = None;
            crate::process::drop_startup_pages();
        }
    }

    fn try_book(&mut self, closing: bool) -> Result<(), crate::store::StoreError> {
        let project = lives_here(&self.ctx);
        let mark = match self.booked {
            Some(mark) => Some(mark),
            None => self.with_host(/* make */ false, |host, _| host.booked(&project)).flatten(),
        };
        // Before the journal is read: a call that ends meanwhile is still open here, and not taken for one that never began.
        let known = self.ctx.state().session.as_ref().map(|session| Known {
            session: session.id,
            open: session.open.as_ref().map(|open| open.token),
            closing,
        });
        let found = Found::since(mark, &mut Reader::live(self.ctx.store_paths.clone()))?;
        let names: Vec<String> = found.bookings.iter().map(|booking| booking.provider.clone()).collect();
        let ids = self.ids(&names);
        let rehearsed: std::collections::BTreeMap<&String, bool> =
            names.iter().map(|name| (name, self.is_rehearsed(name))).collect();
        // What was only rehearsed is no reason to begin a ledger.
        let make = rehearsed.values().any(|rehearsed| !rehearsed);
        let now = self.ctx.now();
        let done = self.with_host(make, |host, me| {
            let owner = |name: &str| {
                (ids.get(name).cloned(), rehearsed.get(&name.to_owned()).copied().unwrap_or(false))
            };
            host.book(me, &found, known, owner, now)
        });
        if done.is_some() || !make {
            self.booked = found.mark.or(self.booked);
        }
        if done.is_some() {
            self.show_windows();
        }
        Ok(())
    }

    /// For `status.json`.
    fn show_windows(&mut self) {
        let (ctx, now, zone) = (self.ctx.clone(), self.ctx.now(), crate::clock::local_zone());
        let project = lives_here(&ctx);
        let shown = self.with_host(/* make */ false, |host, _| {
            let config = ctx.config();
            let shown = Window::KEPT.into_iter().map(|window| {
                let tally = host.tally(window, &project, &zone, now)?;
                Ok(WindowStatus::of(window, limit(&config, window), tally, window.bounds(now, &zone)))
            });
            shown.collect()
        });
        if let Some(shown) = shown {
            *ctx.windows.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = shown;
        }
    }

    /// Nothing real is called, so nothing real is spent.
    fn is_rehearsed(&self, provider: &str) -> bool {
        self.ctx.providers.definition(provider).is_some_and(|known| known.in_process())
    }
}

/// The limit of a window, US dollars.
fn limit(config: &Config, window: Window) -> Option<f64> {
    config.budget.windows().of(window).map(crate::domain::money::MicroUsd::as_usd)
}
