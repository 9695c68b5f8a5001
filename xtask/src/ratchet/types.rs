//! Methods of types, the files over which the `impl` blocks of a type spread, and `pub` items without a user.

use super::Place;
use super::imports::{Graph, Source};
use crate::tokens::{Kind, Token};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An `impl` block.
#[derive(Debug)]
pub struct Block {
    pub file: usize,
    pub line: usize,
    /// The type that it is for, as the file writes it.
    pub path: Vec<String>,
    /// Whether it is of the type itself and not of a trait.
    pub inherent: bool,
    pub methods: Vec<(String, usize)>,
}

/// The `impl` blocks of a file.
pub fn blocks(file: usize, tokens: &[Token<'_>]) -> Vec<Block> {
    let code: Vec<Token<'_>> = tokens
        .iter()
        .filter(|token| token.kind != Kind::Comment)
        .copied()
        .collect();
    let opens_item = |at: usize| {
        code[at].is("impl")
            && (at == 0
                || ["}", ";", "]", "{", "unsafe"]
                    .iter()
                    .any(|t| code[at - 1].is(t)))
    };
    (0..code.len())
        .filter(|at| opens_item(*at))
        .filter_map(|at| block(file, &code[at..]))
        .collect()
}

fn block(file: usize, code: &[Token<'_>]) -> Option<Block> {
    let body = code.iter().position(|token| token.is("{"))?;
    let head = &code[1..body];
    let start = if head.first()?.is("<") {
        closing_angle(head)? + 1
    } else {
        0
    };
    let is_for =
        |at: &usize| head[*at].is("for") && !head.get(*at + 1).is_some_and(|next| next.is("<"));
    let of_trait = (start..head.len()).find(is_for);
    let of_type = &head[of_trait.map_or(start, |at| at + 1)..];
    let name = of_type
        .iter()
        .position(|token| token.kind == Kind::Word && !token.is("dyn") && !token.is("mut"))?;
    let mut path = vec![of_type[name].text.to_string()];
    for pair in of_type[name + 1..].chunks(2) {
        match pair {
            [mark, word] if mark.is("::") && word.kind == Kind::Word => {
                path.push(word.text.into());
            }
            _ => break,
        }
    }
    Some(Block {
        file,
        line: code[0].line,
        path,
        inherent: of_trait.is_none(),
        methods: methods(&code[body..]),
    })
}

/// The index of the `>` that closes the first `<`.
fn closing_angle(code: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0;
    code.iter().position(|token| {
        depth += i32::from(token.is("<")) - i32::from(token.is(">"));
        depth == 0
    })
}

/// The functions directly within the braces that open first.
fn methods(code: &[Token<'_>]) -> Vec<(String, usize)> {
    let mut depth = 0;
    let mut found = Vec::new();
    for (at, token) in code.iter().enumerate() {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        if depth == 0 {
            break;
        }
        if depth == 1 && token.is("fn") {
            found.extend(code.get(at + 1).map(|name| (name.text.into(), name.line)));
        }
    }
    found
}

/// The methods of the type that has most, and the files of the type that is spread most.
pub fn largest(sources: &[Source<'_>], graph: &Graph) -> (Vec<Place>, Vec<Place>) {
    let mut methods: BTreeMap<(usize, &str), Vec<Place>> = BTreeMap::new();
    let mut files: BTreeMap<(usize, &str), BTreeMap<usize, Place>> = BTreeMap::new();
    for (block, owner, name) in graph.owners.iter().filter(|(block, ..)| block.inherent) {
        let key = (*owner, name.as_str());
        let place = |line: usize, what: String| Place {
            path: sources[block.file].path.into(),
            line,
            what,
        };
        let of_type = methods.entry(key).or_default();
        for (method, line) in &block.methods {
            of_type.push(place(*line, format!("{name}::{method}")));
        }
        files
            .entry(key)
            .or_default()
            .entry(block.file)
            .or_insert_with(|| place(block.line, format!("impl {name}")));
    }
    let most = methods.into_values().max_by_key(Vec::len);
    let widest = files.into_values().max_by_key(BTreeMap::len);
    (
        most.unwrap_or_default(),
        widest.unwrap_or_default().into_values().collect(),
    )
}

/// Which crates name a word, in their `src` or elsewhere. Tests, benches and examples of a crate stand outside of it.
#[derive(Default)]
pub struct Names<'a> {
    by_word: HashMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Names<'a> {
    /// `part` is the crate for a file of its `src`, and a name that no crate has for any other file.
    pub fn add(&mut self, part: &'a str, tokens: &[Token<'a>]) {
        for token in tokens.iter().filter(|token| token.kind == Kind::Word) {
            self.by_word.entry(token.text).or_default().insert(part);
        }
    }

    fn outside(&self, crate_name: &str, word: &str) -> bool {
        self.by_word
            .get(word)
            .is_some_and(|parts| parts.iter().any(|part| *part != crate_name))
    }
}

/// The `pub` items of a crate that nothing outside it names.
pub fn unused_pub(crate_name: &str, sources: &[Source<'_>], names: &Names<'_>) -> Vec<Place> {
    let mut found = Vec::new();
    for source in sources {
        for (at, token) in source.tokens.iter().enumerate() {
            if !token.is("pub") {
                continue;
            }
            if let Some(name) = item_name(&source.tokens[at + 1..])
                && !names.outside(crate_name, name.text)
            {
                found.push(Place {
                    path: source.path.into(),
                    line: name.line,
                    what: format!("pub {}", name.text),
                });
            }
        }
    }
    found
}

/// The name of the item after `pub`; none for a field, a `pub use`, or a narrower visibility.
fn item_name<'a>(code: &[Token<'a>]) -> Option<Token<'a>> {
    const ITEMS: &[&str] = &[
        "fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union",
    ];
    let mut at = 0;
    let modifier = |token: &Token<'_>| {
        ["const", "async", "unsafe", "extern", "safe"]
            .iter()
            .any(|word| token.is(word))
    };
    while code.get(at).is_some_and(modifier)
        && code
            .get(at + 1)
            .is_some_and(|t| t.kind == Kind::Text || modifier(t) || t.is("fn"))
    {
        at += 1 + usize::from(code[at + 1].kind == Kind::Text);
    }
    let item = code.get(at)?;
    let name = code.get(at + 1).filter(|name| name.kind == Kind::Word)?;
    ITEMS.iter().any(|word| item.is(word)).then_some(*name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    fn sources<'a>(files: &[(&'a str, &'a str)]) -> Vec<Source<'a>> {
        files
            .iter()
            .map(|(path, text)| Source {
                path,
                tokens: tokens(text),
            })
            .collect()
    }

    #[test]
    fn methods_of_a_type_count_over_all_files_without_those_of_traits() {
        let files = [
            (
                "crates/x/src/core.rs",
                "pub struct Core; impl Core { fn a() { fn inner() {} } }",
            ),
            (
                "crates/x/src/b.rs",
                "use crate::core::Core; impl Core { pub fn b() {} const fn c() {} }",
            ),
            (
                "crates/x/src/c.rs",
                "struct Core; impl Core { fn d() {} } impl Drop for Core { fn drop() {} }",
            ),
        ];
        let sources = sources(&files);
        let (methods, spread) = largest(&sources, &Graph::of(&sources));
        let names: Vec<&str> = methods.iter().map(|place| place.what.as_str()).collect();
        assert_eq!(names, ["Core::a", "Core::b", "Core::c"]);
        assert_eq!(spread.len(), 2);
    }

    #[test]
    fn impl_in_a_signature_is_no_block() {
        let code = "fn f(g: impl Fn(u8)) -> impl Iterator<Item = u8> { g(1) }";
        assert_eq!(blocks(0, &tokens(code)).len(), 0);
    }

    #[test]
    fn pub_item_is_unused_until_another_crate_or_a_test_names_it() {
        let code = "pub fn used() {} pub(crate) fn narrow() {} pub const fn alone() {} pub struct S { pub field: u8 }";
        let files = [("crates/x/src/lib.rs", code)];
        let product = sources(&files);
        let mut names = Names::default();
        names.add("x", &product[0].tokens);
        names.add("", &tokens("// alone\nfn test() { x::used(\"S\") }"));
        let unused: Vec<String> = unused_pub("x", &product, &names)
            .into_iter()
            .map(|place| place.what)
            .collect();
        assert_eq!(unused, ["pub alone", "pub S"]);
    }
}
