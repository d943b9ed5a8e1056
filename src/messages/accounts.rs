//! Accounts: limits, cool-downs and fail-over order.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ractor::RpcReplyPort;

use crate::domain::accounts::Admission;
use crate::domain::state::Account;

/// What Accounts receives.
#[derive(Debug)]
pub enum AccountsMsg {
    /// Session: may a call begin?
    Admit {
        /// The provider chain, primary first.
        chain: Vec<String>,
        /// The one in use.
        active: usize,
        /// What the session knows, what is still to be committed included.
        known: BTreeMap<String, Account>,
        /// The answer.
        reply: RpcReplyPort<Admission>,
    },
    /// Session: what an attempt showed.
    Learned {
        /// The account.
        account: String,
        /// It is left alone, until then and for this; none: it works.
        out: Option<(Option<Timestamp>, String)>,
    },
    /// Session, when it begins, and Accounts' supervisor after a restart: what the store knows.
    Restore(BTreeMap<String, Account>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}
