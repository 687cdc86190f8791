//! The contract of kernel text: what a file of `kernels/` says that it needs from the text before it, compared with what
//! it uses and with what stands before it in kernels.
//!
//! A file says so in the comment at its top, by lists such as
//!
//! ```text
//! // needs constants: TILE_P, TILE_F,
//! //   STAGES
//! // needs sizes: out_w
//! ```
//!
//! The kinds are macros, constants, sizes (members of `struct Shape`), types and functions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;

/// What a name stands for, in the order of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Macro,
    Constant,
    Size,
    Type,
    Function,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Macro, "macros"),
    (Kind::Constant, "constants"),
    (Kind::Size, "sizes"),
    (Kind::Type, "types"),
    (Kind::Function, "functions"),
];

type Names = BTreeSet<(Kind, String)>;

/// What all kernels that were looked at say of the files that they are made of.
#[derive(Debug, Default)]
pub(crate) struct Contract {
    /// Files by their name: the text, what kernels have of it, and what it was seen to use.
    files: BTreeMap<String, (String, String, Names)>,
    seen: HashSet<String>,
    complaints: BTreeSet<String>,
    /// What is given and not needed, and the first kernel in which it is.
    idle: BTreeMap<String, String>,
}

impl Contract {
    /// A contract of these files, each a name and a text.
    pub(crate) fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = files.into_iter().map(|(name, text)| {
            let lines = text.split_inclusive('\n').filter(|line| !line.trim_start().starts_with("//"));
            let of_kernels = lines.collect();
            (name, (text, of_kernels, Names::new()))
        });
        let files = files.collect();
        Contract { files, ..Contract::default() }
    }

    /// Looks at one kernel, whose text has whole files in it.
    pub(crate) fn look_at(&mut self, kernel: &str, source: &str) {
        // The files in the order in which they stand, and generated text between them.
        let mut parts = Vec::new();
        for (name, (text, of_kernels, _)) in &self.files {
            if let Some(at) = source.find(of_kernels.as_str()) {
                parts.push((at, name, text, of_kernels.len()));
            }
        }
        parts.sort_unstable();
        let (mut provided, mut emitted, mut used) = (HashMap::new(), Names::new(), Names::new());
        let mut end = 0;
        let mut found = Vec::new();
        for (at, name, text, length) in parts {
            let generated = Text::new(source.get(end..at).unwrap_or_default());
            emitted.extend(
                generated
                    .defined
                    .iter()
                    .filter(|(kind, _)| matches!(kind, Kind::Constant | Kind::Size))
                    .cloned(),
            );
            used.extend(generated.members.iter().map(|name| (Kind::Size, name.clone())));
            // Once is where it is defined.
            let again = generated.count.iter().filter(|&(_, &count)| count > 1);
            used.extend(again.map(|(name, _)| (Kind::Constant, name.clone())));
            provided.extend(generated.defined.into_iter().map(|(kind, name)| (name, kind)));
            let text = Text::new(text);
            let uses = text.uses(&provided);
            for (kind, need) in &text.needs {
                if provided.get(need) != Some(kind) {
                    self.complaints
                        .insert(format!("{name} needs {need}, which nothing before it gives in {kernel}"));
                }
            }
            used.extend(text.needs.iter().cloned());
            provided.extend(text.defined.into_iter().map(|(kind, name)| (name, kind)));
            found.push((name.clone(), uses));
            end = at + length;
        }
        for (_, name) in emitted.difference(&used) {
            self.idle.entry(name.clone()).or_insert_with(|| kernel.into());
        }
        for (name, uses) in found {
            if let Some((_, _, all)) = self.files.get_mut(&name) {
                all.extend(uses);
            }
            self.seen.insert(name);
        }
    }

    /// What is wrong, a line for each; nothing if every file was seen in a kernel, and lists what it uses.
    pub(crate) fn complaints(mut self) -> Vec<String> {
        let idle = self.idle.iter();
        let idle = idle.map(|(name, kernel)| format!("{name} is given and nothing in {kernel} needs it"));
        self.complaints.extend(idle);
        for (name, (text, _, used)) in &self.files {
            if !self.seen.contains(name) {
                self.complaints.insert(format!("{name} is in no kernel that was looked at"));
                continue;
            }
            let listed = Text::new(text).needs;
            for (_, missing) in used.difference(&listed) {
                self.complaints.insert(format!(
                    "{name} uses {missing} and does not list it; its lists are\n{}",
                    lists(used)
                ));
            }
            for (_, unused) in listed.difference(used) {
                self.complaints.insert(format!("{name} lists {unused} and does not use it"));
            }
        }
        self.complaints.into_iter().collect()
    }
}

/// The lists of a file that uses these names.
fn lists(names: &Names) -> String {
    const WIDTH: usize = 120;
    let mut text = String::new();
    for (kind, word) in KINDS {
        let names: Vec<&str> =
            names.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.as_str()).collect();
        if names.is_empty() {
            continue;
        }
        let mut line = format!("// needs {word}:");
        for (i, name) in names.iter().enumerate() {
            let comma = if i + 1 < names.len() { "," } else { "" };
            if line.len() + 1 + name.len() + comma.len() > WIDTH {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{line}");
                line = "//  ".into();
            }
            let _ = write!(line, " {name}{comma}");
        }
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The names in a piece of text.
#[derive(Debug, Default)]
struct Text {
    /// What the comment at the top lists.
    needs: Names,
    /// What is defined outside of functions and structures, and members of `struct Shape`.
    defined: Names,
    /// What is defined anywhere, parameters of templates and macros included.
    local: HashSet<String>,
    /// Names that are not members, and whether they are called.
    names: HashSet<(String, bool)>,
    /// How often they occur.
    count: HashMap<String, usize>,
    /// Names behind a dot.
    members: HashSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Token<'a> {
    text: &'a str,
    /// Whether no space is between this and the next.
    joined: bool,
    /// Whether it is in a line of the preprocessor.
    directive: bool,
}

impl Token<'_> {
    fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }
}

/// The text without comments and strings.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at, mut directive) = (Vec::new(), 0, false);
    let mut line_begins = true;
    while at < bytes.len() {
        let rest = &text[at..];
        let byte = bytes[at];
        if byte == b'\n' {
            directive &= at > 0 && bytes[at - 1] == b'\\';
            line_begins = true;
            at += 1;
        } else if byte.is_ascii_whitespace() || byte == b'\\' {
            at += 1;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if byte == b'"' {
            let mut end = 1;
            while end < rest.len() && rest.as_bytes()[end] != b'"' {
                end += if rest.as_bytes()[end] == b'\\' { 2 } else { 1 };
            }
            at += end + 1;
            line_begins = false;
        } else {
            directive |= line_begins && byte == b'#';
            line_begins = false;
            let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
            let length = if byte.is_ascii_digit() {
                rest.bytes().take_while(|&c| word(c) || c == b'.').count()
            } else if word(byte) {
                rest.bytes().take_while(|&c| word(c)).count()
            } else {
                rest.chars().next().map_or(1, char::len_utf8)
            };
            let joined = bytes.get(at + length).is_some_and(|next| !next.is_ascii_whitespace());
            tokens.push(Token { text: &rest[..length], joined, directive });
            at += length;
        }
    }
    tokens
}

impl Text {
    fn new(text: &str) -> Self {
        let mut found = Text { needs: needs(text), ..Text::default() };
        let tokens = tokens(text);
        found.read_uses(&tokens);
        found.read_definitions(&tokens);
        found
    }

    fn read_uses(&mut self, tokens: &[Token<'_>]) {
        for (i, token) in tokens.iter().enumerate().filter(|(_, token)| token.is_name()) {
            let before = |back: usize| i.checked_sub(back).map_or("", |at| tokens[at].text);
            if before(1) == "." || (before(1) == ">" && before(2) == "-") {
                self.members.insert(token.text.into());
            } else {
                let next = tokens.get(i + 1).map_or("", |next| next.text);
                let called = next == "(" || (next == "<" && token.joined);
                self.names.insert((token.text.into(), called));
                *self.count.entry(token.text.into()).or_default() += 1;
            }
        }
    }

    fn read_definitions(&mut self, tokens: &[Token<'_>]) {
        let mut depth = 0usize;
        // Whether the statement outside of all braces is a function whose name is still to come.
        let mut function = false;
        let mut shape = false;
        for (i, token) in tokens.iter().enumerate() {
            let at = |ahead: usize| tokens.get(i + ahead).map_or("", |token| token.text);
            let outside = depth == 0;
            match token.text {
                "define" if token.directive => {
                    self.define(Kind::Macro, at(1), true);
                    if at(2) == "(" && tokens[i + 1].joined {
                        let parameters = tokens[i + 3..].iter().take_while(|token| token.text != ")");
                        self.local.extend(parameters.map(|token| token.text.to_string()));
                    }
                }
                _ if token.directive => {}
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    function &= depth > 0;
                    shape &= depth > 0;
                }
                ";" if outside => function = false,
                "DEVICE" if outside => function = true,
                "template" if at(1) == "<" => {
                    // Names of parameters stand before a comma, an equals sign or the end.
                    let list = &tokens[i + 2..];
                    let mut open = 1;
                    for pair in list.windows(2) {
                        match pair[0].text {
                            "<" => open += 1,
                            ">" => open -= 1,
                            _ => {}
                        }
                        if open == 0 {
                            break;
                        }
                        if pair[0].is_name() && [",", "=", ">"].contains(&pair[1].text) {
                            self.local.insert(pair[0].text.into());
                        }
                    }
                }
                "struct" => {
                    let mut name = i + 1;
                    if at(1) == "alignas" {
                        name = after_parentheses(tokens, i + 2);
                    }
                    let name = tokens.get(name).map_or("", |token| token.text);
                    self.define(Kind::Type, name, outside);
                    shape |= name == "Shape";
                }
                "typedef" => {
                    let end = tokens[i..]
                        .iter()
                        .position(|token| token.text == ";")
                        .map_or(tokens.len(), |end| i + end);
                    let attribute = tokens[i..end].iter().position(|token| token.text == "__attribute__");
                    let name = attribute.map_or(end, |attribute| i + attribute) - 1;
                    self.define(Kind::Type, tokens[name].text, outside);
                }
                "constexpr" if !function => self.constants(&tokens[i + 1..], outside),
                _ if shape && depth == 1 && token.is_name() && at(1) == ";" => {
                    self.define(Kind::Size, token.text, true);
                }
                "alignas" | "__attribute__" => {}
                _ if function && outside && token.is_name() && at(1) == "(" => {
                    self.define(Kind::Function, token.text, true);
                    function = false;
                }
                _ => {}
            }
        }
    }

    /// The declarators behind `constexpr`.
    fn constants(&mut self, tokens: &[Token<'_>], outside: bool) {
        let mut open = 0usize;
        for (i, token) in tokens.iter().enumerate() {
            match token.text {
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open = open.saturating_sub(1),
                ";" if open == 0 => break,
                _ => {}
            }
            let next = tokens.get(i + 1).map_or("", |token| token.text);
            let declared = token.is_name() && open == 0 && (next == "=" || next == "{");
            // A comparison has two equals signs.
            if declared && tokens.get(i + 2).is_none_or(|token| next == "{" || token.text != "=") {
                self.define(Kind::Constant, token.text, outside);
            }
        }
    }

    fn define(&mut self, kind: Kind, name: &str, outside: bool) {
        if outside {
            self.defined.insert((kind, name.into()));
        }
        if kind != Kind::Size {
            self.local.insert(name.into());
        }
    }

    /// What of the names that stand before it this text uses.
    fn uses(&self, provided: &HashMap<String, Kind>) -> Names {
        let names = self.names.iter().filter_map(|(name, called)| {
            let kind = *provided.get(name)?;
            let fits = match kind {
                Kind::Size => false,
                Kind::Function => *called,
                _ => true,
            };
            (fits && !self.local.contains(name)).then(|| (kind, name.clone()))
        });
        let sizes = self.members.iter().filter(|name| provided.get(*name) == Some(&Kind::Size));
        names.chain(sizes.map(|name| (Kind::Size, name.clone()))).collect()
    }
}

/// The token behind the parentheses that open at `open`.
fn after_parentheses(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// The lists in the comment at a file's top.
fn needs(text: &str) -> Names {
    let mut names = Names::new();
    let mut kind = None;
    for line in text.lines().map_while(|line| line.strip_prefix("//")) {
        let list = if let Some(list) = line.strip_prefix(" needs ") {
            let Some((word, list)) = list.split_once(':') else { continue };
            kind = KINDS.iter().find(|(_, of)| *of == word).map(|(kind, _)| *kind);
            list
        } else if line.starts_with("   ") {
            line
        } else {
            kind = None;
            continue;
        };
        if let Some(kind) = kind {
            let list = list.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.extend(list.map(|name| (kind, name.to_string())));
        }
    }
    names
}
