//! Secrets from the seed, so that tickets, codes and draws are the same in each run of it.

use crate::rng::Rng;
use firstcome_store::Fault;
use firstcome_store::edge::SecretSource;
use std::sync::{Mutex, PoisonError};

/// Keeps the secrets of a run apart from its other draws: those are the same with and without it.
const SALT: u64 = 0x5EC2;

/// The secrets of one run. It lives as long as the run, so that a store that starts again draws new ones.
#[derive(Debug)]
pub struct SeededSecrets(Mutex<Rng>);

impl SeededSecrets {
    /// Makes the source of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::of(seed, 0, SALT)))
    }
}

impl SecretSource for SeededSecrets {
    fn draw(&self) -> Result<[u8; 32], Fault> {
        // A generator is whole after every draw.
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut secret = [0; 32];
        for word in secret.as_chunks_mut::<8>().0 {
            *word = rng.bits().to_le_bytes();
        }
        Ok(secret)
    }
}
