//! Sample mails that arrive every few seconds, for demonstrations.

use std::{io, net::SocketAddr, thread, time::Duration};

use engine::cores::clock;

/// Recipient of the samples.
pub(crate) const RECIPIENT: &str = "demo@localhost";
/// Interval between two samples.
pub(crate) const EVERY: Duration = Duration::from_secs(6);

/// Starts a thread that sends the samples to `smtp`, as any program would, until the process ends.
///
/// # Errors
/// Returns the system's error if the thread cannot start.
pub(crate) fn trickle(smtp: SocketAddr) -> io::Result<()> {
    let server = smtp.to_string();
    thread::Builder::new().name("samples".to_owned()).spawn(move || {
        loop {
            let mut index = 0;
            loop {
                let now_s = (clock::unix_ms() / 1000) as i64;
                let set = mail::samples::set(RECIPIENT, now_s);
                let Some(sample) = set.get(index) else { break };
                let recipients = [RECIPIENT.to_owned()];
                if let Err(error) =
                    mail::sendmail::submit(&server, sample.envelope_from, &recipients, &sample.raw)
                {
                    tracing::debug!("cannot send a sample mail: {error}");
                }
                thread::sleep(EVERY);
                index += 1;
            }
        }
    })?;
    Ok(())
}
