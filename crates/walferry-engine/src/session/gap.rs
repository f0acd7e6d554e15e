//! A gap: changes that the server cannot send, because the publication did not exist or was different when they were
//! written.
//!
//! Postgres decodes the log with the catalog of that time. If the publication did not exist then, pgoutput fails (up to
//! Postgres 17) or warns and sends nothing (since 18). Creating the publication again does not change that. So nothing
//! behind such a place is delivered, stored or confirmed until a person has decided what to do.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use walferry_diagnosis::Kind;

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tracing::{error, warn};
use walferry_pgoutput::Lsn;

use crate::{
    account::{OffsetStore, StoredOffset},
    failure::Failure,
    gap::{CHANGED, GAP, Gap, GapChoice, GapResolution, MISSING},
    pauses::Pauses,
    published::PublicationLook,
    session::{connector::ConnectorRun, known_gap::Gaps},
    source::{self, Control as _, Frame, FrameBatch, Source, Stream, StreamPhase, StreamPort},
    status,
};

/// How long to wait at a gap before the publication is looked at again; the pause doubles from the first to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After this time the slot is used again, so that the server does not take it for an idle one.
const IDLE: Duration = Duration::from_secs(60);
/// How often to look whether a person has decided.
const LOOK: Duration = Duration::from_millis(250);

/// What the server says about a gap.
struct GapFinding {
    stored: Option<StoredOffset>,
    system_id: u64,
    look: Option<PublicationLook>,
    /// Whether the publication exists now.
    sends: bool,
    /// Whether Walferry may create the publication, as `publication.autocreate.mode` says.
    may_make: bool,
    gap: Gap,
}

impl<S, K, O, P> ConnectorRun<S, K, O, P>
where
    S: Source,
    O: OffsetStore,
{
    /// Takes over the gap that an earlier process waited at.
    pub(crate) async fn remember_gap(&mut self) -> Gaps {
        let stored = match self.store.told_gap().await {
            Ok(stored) => stored.map(|gap| Gap { refused: None, ..gap }),
            Err(failure) => {
                warn!(error = %failure, "the file with the gap cannot be read; it is written again if the gap still exists");
                None
            }
        };
        let gaps = Gaps::default();
        gaps.tell(stored, &self.status);
        gaps
    }

    /// Reports a gap and waits. Returns when another session is needed: a person's decision has been carried out, the
    /// publication is as it was, the server does not answer, or the slot has been idle for a while.
    pub(crate) async fn wait_at_gap(&mut self, failure: Failure, gaps: &Gaps) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        while begun.elapsed() < IDLE {
            let finding = match self.find_gap(&failure, gaps).await {
                Ok(finding) => finding,
                Err(other) => {
                    warn!(code = other.code(), error.kind = other.kind.as_str(), error = %other, hint = other.hint(), "the gap could not be examined; retrying");
                    self.status.set_phase(status::Phase::Waiting(failure));
                    self.wait_for_choice(pauses.next_pause()).await;
                    return Ok(());
                }
            };
            let is_what_it_was = finding
                .look
                .as_ref()
                .is_some_and(|look| look.published.is_some() && look.gap.is_none());
            // Only the stream shows whether a row was written while the publication was missing.
            if is_what_it_was && failure.kind == MISSING && !finding.gap.cannot_close {
                return Ok(());
            }
            self.tell(&failure, &finding.gap, gaps).await;
            // The search may take long, so the gap is reported first.
            if let Some(to) = self.search_end(&finding).await? {
                let gap = Gap {
                    to: Some(to),
                    ..finding.gap
                };
                self.tell(&failure, &gap, gaps).await;
            }
            if let Some(choice) = self.wait_for_choice(pauses.next_pause()).await {
                // The person may have corrected the publication a moment ago.
                let mut finding = self.find_gap(&failure, gaps).await?;
                if finding.may_make && !finding.sends {
                    self.source
                        .control()
                        .ensure_publication(self.settings.tables.clone())
                        .await?;
                    finding = self.find_gap(&failure, gaps).await?;
                }
                finding.gap.to = finding.gap.to.or(self.search_end(&finding).await?);
                return self.carry_out(choice, finding, gaps).await;
            }
        }
        Ok(())
    }

    async fn find_gap(&mut self, failure: &Failure, gaps: &Gaps) -> Result<GapFinding, Failure> {
        let stored = self.store.load().await?;
        let after_commit = stored.as_ref().and_then(|offset| offset.connect.lsn_commit);
        let earlier = gaps.known().filter(|gap| gap.after_commit == after_commit);
        let earlier = earlier.as_ref();
        let known = stored.as_ref().and_then(|offset| offset.publication.clone());
        let known = Gap::known(earlier, known);
        let tables = self.settings.tables.clone();
        let look = self.source.control().published(known, tables).await?;
        let gone = look.as_ref().is_some_and(|look| look.published.is_none());
        let found = match self.source.control().inspect().await {
            Ok(found) => Some(found),
            Err(other) if other.kind == MISSING => None,
            Err(other) => return Err(other),
        };
        let (from, system_id) = (
            stored
                .as_ref()
                .and_then(StoredOffset::start)
                .or_else(|| found.as_ref()?.slot.as_ref()?.confirmed)
                .unwrap_or_default(),
            found.as_ref().map_or(0, |found| found.system_id),
        );
        let seen = look.as_ref().map_or(from, |look| look.lsn);
        let mended = look.as_ref().and_then(|look| look.gap.as_ref());
        // The present problem says more than the one that ended the stream.
        let shown_cause = mended.filter(|_| gone || failure.kind == MISSING).unwrap_or(failure);
        let gap = Gap {
            what: shown_cause.to_string(),
            mend: gone.then(|| shown_cause.causes.first()?.hint.clone()).flatten(),
            from,
            // If there are two gaps, the end of the first one stays. While the server was quiet, the stream may have
            // passed that end: then it is searched for again.
            to: earlier.and_then(|gap| gap.to).filter(|&to| to >= from),
            since_us: earlier.map_or_else(crate::status::now_us, |gap| gap.since_us),
            refused: earlier.and_then(|gap| gap.refused.clone()),
            after_commit,
            cannot_close: earlier.is_some_and(|gap| gap.cannot_close)
                || failure.kind == CHANGED
                || mended.is_some_and(|failure| failure.kind == CHANGED),
            seen,
            compared_with: stored
                .as_ref()
                .and_then(|offset| Some(offset.publication.as_ref()?.lsn)),
            published: look.as_ref().and_then(|look| look.published.as_deref().cloned()),
            renamed: look
                .as_ref()
                .and_then(|look| look.renamed.as_deref().cloned())
                .or_else(|| earlier?.renamed.clone()),
        };
        Ok(GapFinding {
            may_make: found.is_some() && look.as_ref().is_some_and(PublicationLook::is_dropped),
            sends: found.is_some() && !gone,
            stored,
            system_id,
            look,
            gap,
        })
    }

    /// Searches for the position from which the server sends changes again, if it is not known yet and the publication
    /// exists.
    async fn search_end(&mut self, finding: &GapFinding) -> Result<Option<Lsn>, Failure> {
        let gap = &finding.gap;
        if gap.to.is_some() || !finding.sends {
            return Ok(None);
        }
        let end = end_of(self.source.parts().stream, gap.from, gap.seen).await?;
        Ok(Some(end.unwrap_or(gap.from)))
    }

    async fn tell(&mut self, failure: &Failure, gap: &Gap, gaps: &Gaps) {
        let earlier = gaps.known();
        let is_new = earlier
            .as_ref()
            .is_none_or(|earlier| earlier.after_commit != gap.after_commit);
        let is_other = earlier
            .as_ref()
            .is_none_or(|earlier| (earlier.to, &earlier.what) != (gap.to, &gap.what));
        if is_new {
            self.status.counters.gaps.fetch_add(1, Relaxed);
        }
        if is_new || is_other {
            error!(
                lsn.from = %gap.from,
                lsn.to = gap.to.map(tracing::field::display),
                code = failure.code(),
                mend = gap.mend,
                decide = self.status.gap_command(),
                "changes may be missing, and nothing after them is delivered until you decide: {}", gap.what
            );
        }
        self.status.set_phase(status::Phase::Waiting(failure.clone()));
        gaps.tell(Some(gap.clone()), &self.status);
        if let Err(failure) = self.store.tell_gap(Some(gap)).await {
            warn!(error = %failure, "the file that tells `walferry offsets skip-gap` about the gap cannot be written");
        }
    }

    /// Returns a person's decision if there is one within the pause.
    async fn wait_for_choice(&mut self, pause: Duration) -> Option<GapChoice> {
        let end = Instant::now() + pause;
        loop {
            match self.store.choice().await {
                Ok(Some(choice)) => return Some(choice),
                Ok(None) => {}
                Err(failure) => warn!(error = %failure, "the choice of `walferry offsets skip-gap` cannot be read"),
            }
            if Instant::now() >= end {
                return None;
            }
            sleep(LOOK).await;
        }
    }

    /// What the publication has lost since the gap was shown. The person has not seen which changes are missing because
    /// of it: a choice may lie in the folder for a long time before a connector starts and finds it.
    async fn lost_since(&mut self, choice: &GapChoice) -> Result<Option<Failure>, Failure> {
        let Some(published) = choice.published.clone() else {
            // There was no publication. The person knew that all changes were missing.
            return Ok(None);
        };
        let tables = self.settings.tables.clone();
        let look = self
            .source
            .control()
            .published(Some(Arc::new(published)), tables)
            .await?;
        Ok(look.and_then(|look| look.gap))
    }

    async fn carry_out(&mut self, choice: GapChoice, finding: GapFinding, gaps: &Gaps) -> Result<(), Failure> {
        let GapFinding {
            stored,
            system_id,
            look,
            sends,
            mut gap,
            ..
        } = finding;
        let policy = self.settings.snapshot;
        let lost = self.lost_since(&choice).await?;
        let refused = match (choice.way, gap.to) {
            _ if (choice.after_commit, choice.compared_with) != (gap.after_commit, gap.compared_with) => {
                Some("it was made for a different gap than the one at which the connector waits now".to_owned())
            }
            // The publication may have existed when the gap's end was found, and be gone again.
            (_, to) if to.is_none() || !sends => Some(match &gap.mend {
                Some(mend) => format!("{}, so more changes would be missing. Correct this first: {mend}", gap.what),
                None => "the server does not send the changes yet".to_owned(),
            }),
            (GapResolution::Snapshot, _) if !policy.at_first_start && !policy.at_every_start => Some(
                "`snapshot.mode` does not read existing rows: set it to `initial` or `when_needed`, start again, and choose again"
                    .to_owned(),
            ),
            _ => lost.map(|what| {
                format!("{what}: this happened after the gap was shown. Show the gap again, and choose again")
            }),
        };
        if let Some(why) = refused {
            warn!(reason = why, "the choice of `walferry offsets skip-gap` is refused");
            gap.refused = Some(why);
            gaps.tell(Some(gap.clone()), &self.status);
            self.store.tell_gap(Some(&gap)).await?;
            return self.store.settle_choice().await;
        }
        let to = gap.to.unwrap_or(gap.from);
        let mut offset = match choice.way {
            GapResolution::Skip => {
                warn!(lsn.from = %gap.from, lsn.to = %to, "skipping the gap, as chosen with `walferry offsets skip-gap`");
                let mut offset = stored.unwrap_or_default();
                offset.connect.lsn_proc = Some(to.into());
                offset.connect.lsn.get_or_insert(to.into());
                offset.system_id = Some(system_id);
                if to > gap.from {
                    // The last commit lies before the gap. It cannot come again, since the stream cannot be read from
                    // there.
                    let history = offset.history.get_or_insert_default();
                    history.commit = None;
                    history.settled = to;
                }
                offset.publication = look.and_then(|look| look.published).or(offset.publication);
                offset
            }
            GapResolution::Snapshot => {
                warn!(lsn.from = %gap.from, lsn.to = %to, "reading all existing rows again, as chosen with `walferry offsets skip-gap`");
                // Like the offset of a snapshot that was interrupted before it had read a row.
                StoredOffset::default().interrupted()
            }
        };
        self.settings.observers.stream_broken(&mut offset);
        self.store.write(&offset).await?;
        self.status.counters.gaps_skipped.fetch_add(1, Relaxed);
        gaps.tell(None, &self.status);
        self.store.tell_gap(None).await
    }
}

/// LSNs are multiples of this number of bytes.
const ALIGNMENT: u64 = 8;
/// The first step of the search for the end of a gap, in bytes.
const FIRST_STEP: u64 = 64;

/// The position from which the server sends changes again. `None` if it does so from the beginning.
///
/// The server does not know this position. The search asks for the stream at several positions. The steps grow from the
/// beginning instead of halving from the end: if there are two gaps, that finds the end of the first.
async fn end_of(stream: &mut impl Stream, from: Lsn, upper: Lsn) -> Result<Option<Lsn>, Failure> {
    if from >= upper || works(stream, from, upper).await? {
        return Ok(None);
    }
    let (mut bad, mut good, mut step) = (from.0, upper.0, FIRST_STEP);
    while bad + step < good {
        if works(stream, Lsn(bad + step), upper).await? {
            good = bad + step;
            break;
        }
        bad += step;
        step *= 2;
    }
    while good - bad > ALIGNMENT {
        let middle = bad + (good - bad) / 2;
        if works(stream, Lsn(middle), upper).await? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(Some(Lsn(good)))
}

/// How often to ask for the slot while the walsender of the previous try still has it.
const TRIES: u32 = 40;
const TRY_PAUSE: Duration = Duration::from_millis(250);
/// How long the end of a connection may take.
const CLOSE: Duration = Duration::from_secs(5);
/// Bytes of the stream that a try may hold at a time.
const TRY_BYTES: usize = 256 * 1024;

/// Whether the stream can begin at `from`: its first transaction with rows arrives whole, or none was committed before
/// `upper`.
async fn works(stream: &mut impl Stream, from: Lsn, upper: Lsn) -> Result<bool, Failure> {
    let mut tries = 0;
    loop {
        match attempt(stream, from, upper).await {
            Err(failure) if failure.kind == Kind::SlotInUse && tries < TRIES => {
                tries += 1;
                sleep(TRY_PAUSE).await;
            }
            other => return other,
        }
    }
}

async fn attempt(stream: &mut impl Stream, from: Lsn, upper: Lsn) -> Result<bool, Failure> {
    let (frames, mut receiver) = source::frame_channel(TRY_BYTES);
    let (phase, confirmable) = (watch::Sender::new(StreamPhase::Run), watch::Sender::new(None));
    let mut port = StreamPort {
        frames,
        // A try confirms nothing.
        confirmable: confirmable.subscribe(),
        phase: phase.subscribe(),
        server_end: watch::Sender::new(Lsn::default()),
        until: Some(upper),
        is_news: false,
    };
    let mut first = FirstTransaction::default();
    let mut streaming = pin!(stream.stream(from, &mut port));
    let ended = loop {
        tokio::select! {
            ended = &mut streaming => break ended,
            Some(chunk) = receiver.recv() => {
                if first.is_whole(&chunk) {
                    phase.send_replace(StreamPhase::Close);
                    // An orderly end frees the slot at once.
                    let _ = timeout(CLOSE, streaming).await;
                    return Ok(true);
                }
            }
        }
    };
    while let Ok(chunk) = receiver.try_recv() {
        if first.is_whole(&chunk) {
            return Ok(true);
        }
    }
    match ended {
        Ok(()) => Ok(true),
        Err(failure) if failure.kind == GAP => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Whether a transaction with rows has arrived whole.
#[derive(Default)]
struct FirstTransaction {
    has_rows: bool,
}

impl FirstTransaction {
    fn is_whole(&mut self, chunk: &FrameBatch) -> bool {
        let tags = chunk.frames.iter().filter_map(|frame| match frame {
            Frame::Wal { payload, .. } => chunk.bytes.get(payload.start).copied(),
            _ => None,
        });
        for tag in tags {
            match tag {
                b'B' => self.has_rows = false,
                b'I' | b'U' | b'D' | b'T' => self.has_rows = true,
                b'C' if self.has_rows => return true,
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A server with gaps: it cannot send what was committed in one of these ranges.
    struct Server {
        /// LSNs of commits, each with one row.
        commits: Vec<u64>,
        gaps: Vec<(u64, u64)>,
        asked: Arc<Mutex<usize>>,
    }

    impl Stream for Server {
        async fn stream(&mut self, from: Lsn, port: &mut StreamPort) -> Result<(), Failure> {
            *self.asked.lock().unwrap() += 1;
            let until = port.until.expect("a try ends");
            for &commit in self.commits.iter().filter(|&&c| c >= from.0 && c < until.0) {
                if *port.phase.borrow() != StreamPhase::Run {
                    break;
                }
                // A row written before the publication was dropped in the same transaction is sent.
                let bytes = bytes::Bytes::from_static(b"BIC");
                let frame = |at: usize| Frame::Wal {
                    lsn: Lsn(commit),
                    payload: at..at + 1,
                };
                port.frames
                    .send(FrameBatch::new(bytes.clone(), vec![frame(0), frame(1)]))
                    .await
                    .unwrap();
                if self.gaps.iter().any(|&(from, to)| (from..to).contains(&commit)) {
                    return Err(Failure::retry(GAP, "no publication"));
                }
                port.frames.send(FrameBatch::new(bytes, vec![frame(2)])).await.unwrap();
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn the_end_of_a_gap_is_before_the_first_row_that_can_be_sent() {
        // The gaps, and where the stream has to begin: above the last commit in the gap, but not above the next one.
        let commits: Vec<u64> = (1..200).map(|n| n * 1000).collect();
        let cases = [
            ("none", vec![], None),
            ("at once", vec![(1000, 5000)], Some(4000..=5000)),
            ("one commit", vec![(1000, 1001)], Some(1000..=2000)),
            ("up to the end", vec![(1000, 200_000)], Some(199_000..=199_500)),
            (
                "two, of which the second is passed later",
                vec![(1000, 9000), (30_000, 60_000)],
                Some(8000..=9000),
            ),
        ];
        for (name, gaps, expected) in cases {
            let asked = Arc::new(Mutex::new(0));
            let mut server = Server {
                commits: commits.clone(),
                gaps,
                asked: asked.clone(),
            };
            let end = end_of(&mut server, Lsn(500), Lsn(199_500)).await.unwrap();
            assert_eq!(end.is_some(), expected.is_some(), "{name}: {end:?}");
            if let (Some(end), Some(range)) = (end, expected) {
                assert!(
                    range.contains(&end.0) && end.0 > *range.start(),
                    "{name}: {end:?} {range:?}"
                );
            }
            assert!(*asked.lock().unwrap() < 60, "{name}: asked {asked:?} times");
        }
    }

    #[test]
    fn a_missing_publication_is_a_gap_only_where_there_was_one() {
        let missing = Failure::stop(MISSING, "no publication", "make it");
        assert!(!missing.clone().or_gap(false).is_gap());
        assert!(missing.or_gap(true).is_gap());
        assert!(Failure::retry(GAP, "no publication").is_gap());
        assert!(!Failure::retry(Kind::Unreachable, "refused").is_gap());
    }
}
