//! `firstcome verify --draw`: computes the draw of a room again from its public record.

use super::text_of;
use crate::archive::bytes;
use crate::failure::{Failure, Outcome};
use crate::health;
use crate::output::{grouped, table, wants_table, write_out};
use anyhow::{Context, anyhow};
use comfy_table::Cell;
use firstcome::core::room::draw::ALGORITHM;
use firstcome::core::room::{Draw, DrawSeed};
use firstcome::core::time::Timestamp;
use firstcome_tls::Trust;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// How long a service may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The public record, as `GET /v1/rooms/{room}/draw` shows it. Other fields do not matter.
#[derive(Deserialize)]
struct DrawRecord {
    room: String,
    algorithm: String,
    commitment: String,
    seed: Option<String>,
    first: Option<u32>,
    entrants: u32,
}

/// What to check.
pub(super) struct DrawArgs<'a> {
    /// A file, an address, or `-` for the standard input.
    pub(super) source: &'a str,
    /// The commitment that was published before the draw.
    pub(super) commitment: Option<&'a str>,
    /// The tickets whose places are wanted.
    pub(super) numbers: &'a [u32],
    /// Whom a connection by TLS trusts.
    pub(super) trust: &'a Trust,
    pub(super) json: bool,
}

fn read(source: &str, trust: &Trust) -> Result<String, Failure> {
    if source.starts_with("http://") || source.starts_with("https://") {
        // The page of a draw has the record too, for a client that does not ask for HTML.
        let url = match source.split_once("/rooms/") {
            Some((before, room)) if !before.ends_with("/v1") => format!("{before}/v1/rooms/{room}"),
            _ => source.to_owned(),
        };
        return match health::get(&url, ANSWER, trust)? {
            (200, body) => Ok(body),
            (status, body) => Err(Failure::Refused(anyhow!("{url}: {status} {}", body.trim()))),
        };
    }
    text_of(source)
}

/// Reads the draw, and checks it against the commitment. Each refusal says what does not fit.
fn judge(record: &DrawRecord, commitment: Option<&str>) -> anyhow::Result<Draw> {
    if record.algorithm != ALGORITHM {
        return Err(anyhow!("the draw has the algorithm {:?}, and this program knows {ALGORITHM}", record.algorithm));
    }
    let (Some(seed), Some(first)) = (&record.seed, record.first) else {
        let says =
            "the draw has not taken place, or no number took part: keep this record and compare its commitment later";
        return Err(anyhow!(says));
    };
    let seed = DrawSeed::new(bytes("seed", seed)?);
    if seed.commitment() != bytes("commitment", &record.commitment)? {
        return Err(anyhow!("the seed is not the one of the commitment"));
    }
    if let Some(kept) = commitment
        && bytes("--commitment", kept)? != seed.commitment()
    {
        return Err(anyhow!("the seed is not the one of the commitment that you kept: the draw was changed"));
    }
    let draw = Draw { seed, first, entrants: record.entrants, drawn_at: Timestamp::clamped_us(0) };
    if draw.is_sound() { Ok(draw) } else { Err(anyhow!("first and entrants are not a range of numbers")) }
}

/// Counts the places that the permutation does not give exactly once.
fn missing_places(draw: &Draw) -> u64 {
    let permutation = draw.permutation();
    let mut given = vec![0_u64; (draw.entrants as usize).div_ceil(64)];
    let mut once = 0_u64;
    for index in 0..draw.entrants {
        let place = permutation.place(index) as usize;
        let (word, bit) = (place / 64, 1 << (place % 64));
        once += u64::from(given[word] & bit == 0);
        given[word] |= bit;
    }
    u64::from(draw.entrants) - once
}

/// Checks the record and prints the places. Fails if anything does not fit.
pub(super) fn run(args: &DrawArgs<'_>) -> Outcome {
    let text = read(args.source, args.trust)?;
    let record: DrawRecord =
        serde_json::from_str(&text).context("this is no record of a draw").map_err(Failure::Refused)?;
    let draw = judge(&record, args.commitment).map_err(Failure::Refused)?;
    let missing = missing_places(&draw);
    if missing != 0 {
        return Err(Failure::Refused(anyhow!("{missing} places are given to no number")));
    }
    let permutation = draw.permutation();
    let place =
        |number: u32| (draw.first <= number && number < draw.end()).then(|| permutation.place(number - draw.first) + 1);
    if wants_table(args.json) {
        let mut table = table(&["Number", ">Place"]);
        for &number in args.numbers {
            let place = place(number).map_or_else(|| "took no part".to_owned(), |place| grouped(place.into()));
            table.add_row([Cell::new(grouped(number.into())), Cell::new(place)]);
        }
        let entrants = grouped(draw.entrants.into());
        let mut text = format!("{}: the seed fits the commitment; {entrants} numbers have a place each\n", record.room);
        if !args.numbers.is_empty() {
            text.push_str(&format!("{table}\n"));
        }
        write_out(text.as_bytes())?;
        return Ok(());
    }
    let places: Vec<_> = args.numbers.iter().map(|&number| json!({"number": number, "place": place(number)})).collect();
    let report = json!({"room": record.room, "entrants": draw.entrants, "first": draw.first, "places": places});
    write_out(format!("{report:#}\n").as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seed: u8) -> DrawRecord {
        let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let seed = DrawSeed::new([seed; 32]);
        DrawRecord {
            room: "sale".into(),
            algorithm: ALGORITHM.into(),
            commitment: text(&seed.commitment()),
            seed: Some(text(seed.as_bytes())),
            first: Some(5),
            entrants: 1_000,
        }
    }

    #[test]
    fn a_draw_fits_only_its_own_commitment() {
        let draw = judge(&record(1), None).unwrap();
        assert_eq!((draw.first, draw.entrants, missing_places(&draw)), (5, 1_000, 0));
        let own = record(1).commitment;
        assert!(judge(&record(1), Some(&own)).is_ok());
        let says = |record: DrawRecord, kept: Option<&str>| judge(&record, kept).unwrap_err().to_string();
        assert!(says(record(1), Some(&record(2).commitment)).contains("was changed"));
        assert!(says(DrawRecord { seed: record(2).seed, ..record(1) }, None).contains("not the one of the commitment"));
        assert!(says(DrawRecord { seed: None, ..record(1) }, None).contains("has not taken place"));
        assert!(says(DrawRecord { algorithm: "dice".into(), ..record(1) }, None).contains("dice"));
        assert!(says(DrawRecord { first: Some(0), ..record(1) }, None).contains("range of numbers"));
        assert!(says(DrawRecord { seed: Some("zz".into()), ..record(1) }, None).contains("seed"));
    }
}
