//! Converts steps to bytes and answers from bytes without a server, for measurements.

use super::{RedisLocks, answer, run_of};
use firstcome_core::lock::{Answer, Step};

impl RedisLocks {
    /// Returns the bytes that [`take`](firstcome_store::LockStore::take) sends for a step.
    pub fn written(step: &Step) -> Vec<u8> {
        run_of(step).command.get_packed_command()
    }

    /// Reads the server's answer to a step; `None` if the bytes are not a valid answer.
    pub fn read(step: &Step, bytes: &[u8]) -> Option<Answer> {
        answer(step, redis::parse_redis_value(bytes).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome_core::id::LockName;
    use firstcome_core::lock::{ClientId, Copies, LockAnswer, Released, Request};

    #[test]
    fn a_release_goes_out_as_one_command_and_its_answer_is_read() {
        let name = LockName::parse("a").unwrap();
        let step = Step::Release { name, request: Request { client: ClientId(7), number: 1 }, copies: Copies::One };
        let written = String::from_utf8(RedisLocks::written(&step)).unwrap();
        assert!(written.starts_with("*5\r\n$7\r\nEVALSHA\r\n$40\r\n"), "{written}");
        assert!(written.ends_with("$18\r\n0000000000000007:1\r\n"), "{written}");
        let read = RedisLocks::read(&step, b"$2\r\n12\r\n");
        assert_eq!(read, Some(Answer { now_us: 12, said: LockAnswer::Released(Released::Released) }));
        assert_eq!(RedisLocks::read(&step, b"+OK\r\n"), None);
    }
}
