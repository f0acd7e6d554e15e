//! Any bytes as what a server says on a replication connection: answers to a command, then the stream.
#![no_main]

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::LazyLock,
    task::{Context, Poll},
};

use bytes::BytesMut;
use encoding::TextEncoding;
use libfuzzer_sys::fuzz_target;
use tokio::{io::ReadBuf, runtime::Runtime};
use walferry_engine::source::Frame;

#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/encoding.rs"]
mod encoding;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/stream/frames.rs"]
mod frames;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/chunks/not_published.rs"]
mod not_published;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/setup/problem.rs"]
mod problem;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/quote.rs"]
mod quote;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/stream/recode.rs"]
mod recode;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/connection/server_error.rs"]
mod server_error;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/catalog/table_name.rs"]
mod table_name;
#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/connection/wire.rs"]
mod wire;

mod catalog {
    pub(crate) use crate::table_name;
}

mod chunks {
    pub(crate) use crate::not_published;
}

mod setup {
    pub(crate) use crate::problem;
}

/// A connection without a socket.
mod connection {
    use super::*;
    pub(crate) use crate::{server_error, wire};

    /// What the server says, a few bytes a read.
    #[derive(Debug)]
    pub(crate) struct Stream {
        pub(crate) said: Vec<u8>,
        pub(crate) read: usize,
        pub(crate) step: usize,
    }

    impl Stream {
        pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
            None
        }
        pub(crate) fn is_encrypted(&self) -> bool {
            false
        }
    }

    impl tokio::io::AsyncRead for Stream {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let unread = &self.said[self.read..];
            let count = self.step.min(unread.len()).min(into.remaining());
            into.put_slice(&unread[..count]);
            self.read += count;
            Poll::Ready(Ok(()))
        }
    }

    impl tokio::io::AsyncWrite for Stream {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(from.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Logins and certificates come before the stream, so nothing of them can be refused here.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AuthRefusal {}

    impl std::error::Error for AuthRefusal {}

    impl std::fmt::Display for AuthRefusal {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match *self {}
        }
    }

    impl AuthRefusal {
        pub(crate) fn hint(self) -> String {
            match self {}
        }
    }

    pub(crate) async fn within<T>(_: std::time::Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}

/// What a stream of the server's says, however it is cut into reads.
#[derive(Debug, PartialEq, Default)]
struct StreamContent {
    /// Payloads of frames, and positions.
    frames: Vec<(u64, Vec<u8>)>,
    relations: Vec<usize>,
    reply_requested: bool,
    end: Option<String>,
}

fn read(mut buffer: frames::FrameBuffer, stream: &mut connection::Stream) -> StreamContent {
    let mut content = StreamContent::default();
    loop {
        let piece = match buffer.take() {
            Ok(piece) => piece,
            Err(error) => {
                content.end = Some(error.to_string());
                return content;
            }
        };
        for &index in &piece.relations {
            assert!(matches!(piece.frames[index], Frame::Wal { .. }));
            content.relations.push(content.frames.len() + index);
        }
        let _ = piece.described();
        for frame in &piece.frames {
            content.frames.push(match frame {
                Frame::Wal { lsn, payload } => (lsn.0, piece.bytes[payload.clone()].to_vec()),
                Frame::Keepalive { wal_end } => (wal_end.0, Vec::new()),
                other => panic!("{other:?}"),
            });
        }
        content.reply_requested |= piece.reply_requested;
        match piece.end {
            Some(frames::End::ByServer) => content.end = Some("by the server".to_owned()),
            Some(frames::End::Failed(error)) => {
                content.end = Some(error.to_string());
                // What it means for the connector is worked out, too.
                let _ = walferry_engine::Failure::from(error);
            }
            None => {}
        }
        if content.end.is_some() {
            return content;
        }
        match RUNTIME.block_on(pin!(buffer.fill(stream))) {
            Ok(count) if count > 0 => {}
            _ => return content,
        }
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers can be built")
});

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, step], said)) = input.split_first_chunk() else {
        return;
    };
    let step = usize::from(step) + 1;
    let stream = |step| connection::Stream {
        said: said.to_vec(),
        read: 0,
        step,
    };
    if kind.is_multiple_of(2) {
        let mut wire = wire::Wire::new(stream(step));
        RUNTIME.block_on(async {
            if let Err(error) = wire.command("asking", "IDENTIFY_SYSTEM").await {
                drop((error.to_string(), walferry_engine::Failure::from(error)));
                return;
            }
            // The connection can be used again.
            if let Err(error) = wire.copy_both("starting", b"START_REPLICATION").await {
                drop(walferry_engine::Failure::from(error));
                return;
            }
            let (_, leftover) = wire.into_parts();
            drop(frames::FrameBuffer::new(&leftover, TextEncoding::OfServer).take());
        });
        return;
    }
    // Texts of a database that takes any bytes are looked at; others are passed on.
    let encoding = if kind % 4 == 1 {
        TextEncoding::OfServer
    } else {
        TextEncoding::Ascii
    };
    let in_parts = read(frames::FrameBuffer::new(&[], encoding.clone()), &mut stream(step));
    let at_once = read(
        frames::FrameBuffer::new(&BytesMut::from(said), encoding),
        &mut connection::Stream {
            said: Vec::new(),
            read: 0,
            step: 1,
        },
    );
    if in_parts
        .end
        .as_deref()
        .is_some_and(|end| end.starts_with("unexpected answer"))
    {
        // What was read together with malformed bytes is not handed on; it comes again on the next connection.
        assert_eq!(in_parts.end, at_once.end);
        assert!(in_parts.frames.starts_with(&at_once.frames));
    } else {
        assert_eq!(in_parts, at_once);
    }
});
