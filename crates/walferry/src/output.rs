//! Standard output and standard error, whatever happens to whoever reads them.
//!
//! Their reader may go away (`| tee`, a log service that ends), stop reading while the pipe is full, or be a file on a full disk. A thread of
//! its own writes to each of them, so a write that never returns holds up nothing else: rows are sent on, and signals are answered.
//!
//! - A line of the log waits until it is written, but not long. Then the output counts as stuck, and lines wait in a queue without holding
//!   up whoever logs. What does not fit into the queue, or cannot be written, is left out, and the log says so as soon as it can.
//! - What a command shows is not left out: it waits for its reader, until the process is asked to end.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, ErrorKind, Write},
    process,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use walferry_diagnosis::Kind;

use crate::{error::Error, logging, signals};

/// How long a line of the log is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the end of the process waits for an output. It may be that only the thread that writes does not get its
/// turn on a busy machine, and the last lines say why the process has ended.
const LAST_PATIENCE: Duration = Duration::from_secs(3);
/// How much of the log waits for an output that is stuck.
const ROOM_BYTES: usize = 256 * 1024;
/// Pause before another attempt at an output that somebody has made non-blocking, and that is full.
const RETRY: Duration = Duration::from_millis(10);
/// What a shell shows of a program that was ended by SIGPIPE, as most programs are whose output nobody reads any more.
const NOBODY_READS: u8 = 141;

/// Writes a line to standard error, as `eprintln!` does, without what would control a terminal. It neither panics nor hangs.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::stderr().log(format!("{}\n", walferry_diagnosis::printed::lines(&format!($($text)*))).into_bytes())
    };
}
pub(crate) use note;

/// Standard output.
pub(crate) fn stdout() -> &'static Outlet {
    static STDOUT: OnceLock<Arc<Outlet>> = OnceLock::new();
    STDOUT.get_or_init(|| Outlet::start("stdout", Standard::Output))
}

/// Standard error.
pub(crate) fn stderr() -> &'static Outlet {
    static STDERR: OnceLock<Arc<Outlet>> = OnceLock::new();
    STDERR.get_or_init(|| Outlet::start("stderr", Standard::Error))
}

/// Ends the process, as soon as what it has logged is written, or when it cannot be.
pub(crate) fn exit(code: u8) -> ! {
    stderr().settle(LAST_PATIENCE);
    process::exit(i32::from(code))
}

/// The same for somebody who does not want to wait any longer.
pub(crate) fn exit_at_once(code: u8) -> ! {
    stderr().settle(PATIENCE);
    process::exit(i32::from(code))
}

/// The exit code of a command that has done what it was asked to: another one if nobody has read all it had to show.
pub(crate) fn code_of_success() -> u8 {
    if stdout().is_closed() { NOBODY_READS } else { 0 }
}

/// The file descriptors, written to without the locks and buffers of `std`: a lock that is held by a write that hangs would stop others.
enum Standard {
    Output,
    Error,
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self {
            Self::Output => rustix::io::write(io::stdout(), bytes),
            Self::Error => rustix::io::write(io::stderr(), bytes),
        };
        Ok(written?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output with the thread that writes to it.
pub(crate) struct Outlet {
    state: Mutex<State>,
    changed: Condvar,
    is_closed: AtomicBool,
}

/// What is to be written at once.
struct Piece {
    bytes: Vec<u8>,
    /// How many lines of the log would be missing without it.
    lines: u64,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Piece>,
    waiting_bytes: usize,
    /// How many pieces have been taken in so far, and how many of them have been written or given up. The difference is those in
    /// `waiting` and the one that is being written.
    taken_in: u64,
    settled: u64,
    /// The last piece that could not be written: its number, and why.
    failed: Option<(u64, ErrorKind, String)>,
    /// Somebody has waited in vain for a piece, and the thread has not caught up since.
    is_stuck: bool,
    /// Lines of the log that are left out, and that no line of the log has told of yet.
    lost: u64,
    lost_because: String,
}

impl State {
    /// Takes in a piece, and returns its number.
    fn take_in(&mut self, piece: Piece) -> u64 {
        self.waiting_bytes += piece.bytes.len();
        self.waiting.push_back(piece);
        self.taken_in += 1;
        self.taken_in
    }

    fn lose(&mut self, lines: u64, why: impl FnOnce() -> String) {
        if lines > 0 {
            self.lost += lines;
            self.lost_because = why();
        }
    }
}

impl Outlet {
    fn start(name: &str, to: impl Write + Send + 'static) -> Arc<Self> {
        let outlet = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
        });
        let writer = outlet.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        if let Err(error) = thread.spawn(move || writer.work(to)) {
            // Then the process cannot do its work either: most of it has threads of its own.
            let hint = "raise the limit of threads (`ulimit -u`, or the container's limit of processes)";
            let error = Error::new(Kind::NoThread, "Walferry did not start")
                .cause(format!("a thread could not be started: {error}"), Some(hint.to_owned()));
            // If nobody reads it, the exit code still says it.
            let _ = writeln!(io::stderr(), "{error}");
            process::exit(error.exit as i32);
        }
        outlet
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody reads it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Writes a line of the log, or a part of one. Usually it is written when this returns.
    pub(crate) fn log(&self, bytes: Vec<u8>) {
        let mut state = self.lock();
        if !state.waiting.is_empty() && state.waiting_bytes + bytes.len() > ROOM_BYTES {
            return state.lose(1, || "nothing has read the output for a while".to_owned());
        }
        if state.lost > 0 {
            let (lines, because) = (std::mem::take(&mut state.lost), std::mem::take(&mut state.lost_because));
            let bytes = logging::lost_lines(lines, &because).into_bytes();
            state.take_in(Piece { bytes, lines });
        }
        let number = state.take_in(Piece { bytes, lines: 1 });
        self.changed.notify_all();
        let deadline = Instant::now() + PATIENCE;
        while state.settled < number && !state.is_stuck {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                state.is_stuck = true;
                break;
            };
            state = self.wait(state, left);
        }
    }

    /// Writes what may be left out, such as a bar that is drawn again soon.
    pub(crate) fn draw(&self, bytes: Vec<u8>) {
        let mut state = self.lock();
        if !state.is_stuck && state.waiting_bytes + bytes.len() <= ROOM_BYTES {
            state.take_in(Piece { bytes, lines: 0 });
            self.changed.notify_all();
        }
    }

    /// Writes what a command shows, and returns when it is written. If the process is asked to end meanwhile, it waits only a moment longer.
    ///
    /// # Errors
    /// It cannot be written: [`ErrorKind::BrokenPipe`] if nobody reads any more, [`ErrorKind::TimedOut`] if the process is to end.
    pub(crate) fn show(&self, bytes: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        let number = state.take_in(Piece { bytes, lines: 0 });
        self.changed.notify_all();
        let mut deadline = None;
        while state.settled < number {
            if signals::has_come() {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() >= deadline {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            state = self.wait(state, PATIENCE);
        }
        match &state.failed {
            Some((failed, kind, why)) if *failed == number => Err(io::Error::new(*kind, why.clone())),
            _ => Ok(()),
        }
    }

    /// Waits until everything is written, and no longer than that.
    fn settle(&self, patience: Duration) {
        let mut state = self.lock();
        let deadline = Instant::now() + patience;
        while state.settled < state.taken_in {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return;
            };
            state = self.wait(state, left);
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, longest: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, longest);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Writes what is taken in, for as long as the process lives.
    fn work(&self, mut to: impl Write) {
        let mut is_within_line = false;
        loop {
            let piece = self.next();
            // A line that was cut off does not run into the next one.
            let cut = if is_within_line {
                write_all(&mut to, b"\n")
            } else {
                Ok(())
            };
            let written = cut.map_err(|error| (0, error)).and_then(|()| {
                is_within_line = false;
                write_all_of(&mut to, &piece.bytes)
            });
            if let Err((count, _)) = &written {
                is_within_line |= *count > 0;
            }
            self.settled(&piece, written.map_err(|(_, error)| error));
        }
    }

    /// Waits for the next piece.
    fn next(&self) -> Piece {
        let mut state = self.lock();
        loop {
            if let Some(piece) = state.waiting.pop_front() {
                state.waiting_bytes -= piece.bytes.len();
                return piece;
            }
            state.is_stuck = false;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn settled(&self, piece: &Piece, written: io::Result<()>) {
        let mut state = self.lock();
        state.settled += 1;
        if let Err(error) = written {
            if error.kind() == ErrorKind::BrokenPipe {
                self.is_closed.store(true, Relaxed);
            }
            state.lose(piece.lines, || error.to_string());
            state.failed = Some((state.settled, error.kind(), error.to_string()));
        }
        self.changed.notify_all();
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").finish_non_exhaustive()
    }
}

fn write_all(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    write_all_of(to, bytes).map_err(|(_, error)| error)
}

/// Writes all bytes. An error has the number of bytes that were written before it.
fn write_all_of(to: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut count = 0;
    while count < bytes.len() {
        match to.write(&bytes[count..]) {
            Ok(0) => return Err((count, ErrorKind::WriteZero.into())),
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
            Err(error) => return Err((count, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, sync::mpsc};

    use super::*;

    /// An output that takes what the test lets it take, and says what it got.
    struct Held {
        answers: mpsc::Receiver<io::Result<usize>>,
        got: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without the test, it takes all.
            let most = self.answers.recv().unwrap_or(Ok(usize::MAX))?;
            let count = most.min(bytes.len());
            drop(self.got.send(bytes[..count].to_vec()));
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn held() -> (Arc<Outlet>, mpsc::Sender<io::Result<usize>>, mpsc::Receiver<Vec<u8>>) {
        let (answer, answers) = mpsc::channel();
        let (got, gets) = mpsc::channel();
        (Outlet::start("held", Held { answers, got }), answer, gets)
    }

    /// Waits until everything that was taken in is written or given up.
    fn wait_until_settled(outlet: &Outlet) {
        let mut state = outlet.lock();
        while state.settled < state.taken_in {
            state = outlet.wait(state, PATIENCE);
        }
    }

    #[test]
    fn an_output_that_takes_nothing_holds_up_nobody_and_what_is_missing_is_told() {
        let (outlet, answer, gets) = held();
        // The first one waits in vain, the others do not wait: far more of them than there is room for.
        let all = 2 * ROOM_BYTES / 100;
        for number in 0..all {
            outlet.log(format!("{number:>99}\n").into_bytes());
        }
        drop(answer);
        wait_until_settled(&outlet);
        outlet.log(b"and on\n".to_vec());
        wait_until_settled(&outlet);
        let written = String::from_utf8(gets.try_iter().collect::<Vec<_>>().concat()).unwrap();
        let mut lines: Vec<_> = written.lines().collect();
        assert_eq!(lines.pop(), Some("and on"));
        let remark = lines.pop().unwrap();
        let numbers: Vec<usize> = lines.iter().map(|line| line.trim().parse().unwrap()).collect();
        assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>(), "they keep their order");
        let missing = format!(" {} lines of the log are missing", all - numbers.len());
        assert!(remark.contains(&missing), "{remark}");
        // There is room again: nobody is held up, and nothing is left out.
        outlet.log(b"as before\n".to_vec());
        wait_until_settled(&outlet);
        assert_eq!(gets.try_iter().collect::<Vec<_>>(), [b"as before\n"]);
    }

    #[test]
    fn a_line_that_a_full_disk_has_cut_off_is_told_and_does_not_run_into_the_next() {
        let (outlet, answer, gets) = held();
        let full = || Err(ErrorKind::StorageFull.into());
        // The second line fails twice: with the line that tells of the first.
        for answer_of_disk in [Ok(3), full(), full(), full()] {
            answer.send(answer_of_disk).unwrap();
        }
        for line in ["first\n", "second\n"] {
            outlet.log(line.into());
            wait_until_settled(&outlet);
        }
        drop(answer);
        outlet.log(b"third\n".to_vec());
        wait_until_settled(&outlet);
        let all = String::from_utf8(gets.try_iter().collect::<Vec<_>>().concat()).unwrap();
        let lines: Vec<_> = all.lines().collect();
        let [cut, remark, third] = lines[..] else {
            panic!("{all}")
        };
        assert_eq!((cut, third), ("fir", "third"));
        assert!(remark.contains(" 2 lines of the log are missing"), "{remark}");
    }

    #[test]
    fn a_closed_pipe_is_an_error_of_what_is_shown_and_none_of_the_log() {
        let (read, write) = io::pipe().unwrap();
        let outlet = Outlet::start("pipe", write);
        outlet.show(b"one\n".to_vec()).unwrap();
        let mut four = [0; 4];
        (&read).read_exact(&mut four).unwrap();
        assert_eq!((&four, outlet.is_closed()), (b"one\n", false));
        drop(read);
        outlet.log(b"two\n".to_vec());
        assert_eq!(
            outlet.show(b"three\n".to_vec()).unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        assert!(outlet.is_closed());
    }

    #[test]
    fn the_end_waits_for_lines_that_are_written_late() {
        let (outlet, answer, gets) = held();
        outlet.log(b"late\n".to_vec());
        let ends = outlet.clone();
        let end = thread::spawn(move || ends.settle(Duration::from_secs(300)));
        assert!(gets.try_recv().is_err() && !end.is_finished(), "nothing is written yet");
        drop(answer);
        end.join().unwrap();
        assert_eq!(gets.try_iter().collect::<Vec<_>>(), [b"late\n"]);
    }

    #[test]
    fn what_is_shown_waits_for_its_reader() {
        let (outlet, answer, gets) = held();
        let writer = outlet.clone();
        let showing = thread::spawn(move || writer.show(b"shown\n".to_vec()));
        answer.send(Ok(2)).unwrap();
        assert_eq!(gets.recv().unwrap(), b"sh");
        assert!(!showing.is_finished(), "the rest is not taken yet");
        drop(answer);
        showing.join().unwrap().unwrap();
        assert_eq!(gets.recv().unwrap(), b"own\n");
    }
}
