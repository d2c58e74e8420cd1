//! The conversation with a guest over its serial port: one line, one message.
//!
//! Lines that begin with `@` are meant for the test (`init.sh`, `prelude.sh`); all others are the output of
//! the script's commands and go to the log only.

/// A line from the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// The root file system is up and the script begins.
    Booted { release: String },
    /// A check of the script held.
    Ok { check: String },
    /// A check of the script did not hold.
    NotOk { what: String },
    /// The script waits for the test to do something.
    Ask(Ask),
    /// The script ended well. Only this proves success: QEMU's own exit status does not.
    Done,
    /// The script ended with this status.
    Failed { status: String },
    /// Output of a command.
    Output(String),
}

/// Something that the guest's script wants the test to do (`ask` in the script).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    words: Vec<String>,
}

impl Ask {
    /// What is to be done, and with what: the words of the script's `ask`.
    #[must_use]
    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }
}

/// What a guest did that ended well.
#[derive(Debug)]
pub struct Report {
    /// The kernel that ran, as `uname -r` has it.
    pub release: String,
    /// The names of the checks that held, in order.
    pub checks: Vec<String>,
    /// The commands' output.
    pub lines: Vec<String>,
}

impl Report {
    /// Whether the named check ran and held. A script that skips a check by mistake must not pass.
    #[must_use]
    pub fn held(&self, check: &str) -> bool {
        self.checks.iter().any(|held| held == check)
    }
}

impl Line {
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim_end_matches(['\r', '\n']);
        let Some(message) = line.strip_prefix('@') else { return Self::Output(line.to_owned()) };
        let (word, rest) = message.split_once(' ').unwrap_or((message, ""));
        let rest = rest.to_owned();
        match word {
            "booted" => Self::Booted { release: rest },
            "ok" => Self::Ok { check: rest },
            "not-ok" => Self::NotOk { what: rest },
            "ask" => Self::Ask(Ask { words: rest.split_whitespace().map(str::to_owned).collect() }),
            "done" => Self::Done,
            "failed" => Self::Failed { status: rest },
            _ => Self::Output(line.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_the_mark_are_messages() {
        assert_eq!(Line::parse("@done\r\n"), Line::Done);
        assert_eq!(Line::parse("done\r\n"), Line::Output("done".to_owned()));
        assert_eq!(Line::parse("@unheard of"), Line::Output("@unheard of".to_owned()));
        assert_eq!(Line::parse("@ok reads back"), Line::Ok { check: "reads back".to_owned() });
        let Line::Ask(ask) = Line::parse("@ask resize 64\r\n") else { panic!("an ask is one") };
        assert_eq!(ask.words(), ["resize", "64"]);
    }
}
