//! `nighttrain mail send-sample` and `sendmail`: commands that send mail to the mail service's SMTP port.

use std::io;

use clap::{Args, Subcommand};
use engine::cores::clock;
use mail::{samples, sendmail};

use crate::{console::print, failure::Failure};

/// A command of the mail tools.
#[derive(Debug, Subcommand)]
pub(crate) enum MailTool {
    /// Fills an inbox with realistic mails: newsletter, code, attachment, Japanese, right-to-left,
    /// invitation, broken
    SendSample(SampleTool),
    /// Takes a mail on stdin like the program of that name, and hands it to the mail service; nothing is sent elsewhere
    #[command(disable_help_flag = true)]
    Sendmail(SendmailTool),
}

/// `nighttrain mail send-sample`
#[derive(Debug, Args)]
pub(crate) struct SampleTool {
    /// The inbox that receives the samples
    #[arg(default_value = "hello@localhost")]
    pub address: String,
    /// SMTP address of the mail service
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1025", env = "NIGHTTRAIN_MAIL_SMTP")]
    pub smtp: String,
}

/// `nighttrain mail sendmail`
#[derive(Debug, Args)]
pub(crate) struct SendmailTool {
    /// Flags of sendmail (-t, -i, -f ADDRESS, -F NAME, -oi …) and recipients; NIGHTTRAIN_MAIL_SMTP names the service
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub arguments: Vec<String>,
    #[arg(long, hide = true, default_value = "127.0.0.1:1025", env = "NIGHTTRAIN_MAIL_SMTP")]
    pub nighttrain_smtp: String,
}

pub(crate) fn perform(tool: &MailTool) -> Result<(), Failure> {
    match tool {
        MailTool::SendSample(tool) => send_samples(tool),
        MailTool::Sendmail(tool) => send(tool),
    }
}

fn send_samples(tool: &SampleTool) -> Result<(), Failure> {
    let now_s = (clock::unix_ms() / 1000).cast_signed();
    let set = samples::set(&tool.address, now_s);
    for sample in &set {
        sendmail::submit(&tool.smtp, sample.envelope_from, std::slice::from_ref(&tool.address), &sample.raw)
            .map_err(|fault| Failure::Failed(fault.to_string().replacen("sendmail: ", "", 1)))?;
    }
    print(&format!("{} mails sent to {}\n", set.len(), tool.address))
}

/// Hands a mail to the service, and ends with the exit codes of `sysexits.h`, which callers of sendmail
/// expect.
fn send(tool: &SendmailTool) -> Result<(), Failure> {
    let failed = |fault: sendmail::SendmailFault| Failure::As(fault.exit_code(), fault.to_string());
    let call = sendmail::Call::parse(&tool.arguments).map_err(failed)?;
    call.run(io::stdin().lock(), &tool.nighttrain_smtp).map_err(failed)
}
