//! Which file of a crate imports which: the circles of this graph, and imports against the order of floors.
//!
//! A file imports another by a `use` item, by a path in a body, or by an `impl` for a type that the other defines. An
//! import of a name that is passed on (`pub use`) counts for the file that defines the name. A `pub use` itself counts
//! only where the file uses the name besides.

use super::Place;
use super::types::{self, Block};
use crate::tokens::{Kind, Token};
use std::collections::{HashMap, HashSet};

/// The order of floors in a crate: names of its folders and files from the lowest floor to the highest. Names of one
/// entry share a floor. An import may not lead to a higher floor; imports of and by the crate's root do not count.
const FLOORS: &[(&str, &[&[&str]])] = &[
    (
        "code",
        &[
            &["gf"],
            &["crc", "kernels", "check"],
            &["linear", "reference"],
        ],
    ),
    (
        "array",
        &[
            &["floor", "runset", "shown", "slab", "roles"],
            &["cache", "choose", "config", "fills", "policy"],
            &["facts"],
            &["members"],
            &["metadata"],
            &["durability"],
            &["clients"],
            &["safety"],
            &["targets"],
            &["slice"],
            &["intake"],
            &["task"],
            &["claims"],
            &["start"],
            &["commands"],
            &["instance", "revival"],
            &["part", "set"],
        ],
    ),
    (
        "tier",
        &[
            &["floor", "policy"],
            &["config", "overlay"],
            &["route"],
            &["facts"],
            &["children"],
            &["works"],
            &["reads"],
            &["append"],
            &["pack"],
            &["nvram"],
            &["sessions"],
            &["deferred_mirror"],
            &["redirect"],
            &["clean"],
            &["destage"],
            &["remove", "report"],
            &["start"],
            &["stop"],
            &["revive"],
            &["tier", "commands", "drive", "view"],
            &["atomic"],
            &["engine"],
        ],
    ),
    (
        "sim",
        &[
            &["fault", "invariant", "rng", "tally"],
            &["deaths", "payload"],
            &["image", "memory", "oracle"],
            &["compute", "digest", "disk", "workload"],
            &["array", "crash"],
            &["world"],
            &["atlas", "session"],
            &["run"],
            &["swarm"],
            &["surrogate"],
            &["enumerate"],
            &["program"],
            &["bin"],
        ],
    ),
    (
        "io",
        &[
            &["memory", "nbd_wire", "record", "regular"],
            &["tls"],
            &["backend", "compute", "signals"],
            &["tokens"],
            &["control"],
            &["front"],
            &["member"],
            &["fleet"],
            &["host"],
            &["remote"],
            &["shell"],
            &["attach", "metrics", "plain"],
        ],
    ),
    (
        "lab",
        &[
            &[
                "latency", "nbd", "nearest", "pattern", "svg", "threads", "trace",
            ],
            &["plot"],
            &["chart", "drives", "generate", "load", "reliability"],
            &["plan", "report"],
            &["replay"],
            &["experiment"],
            &["cache"],
            &["papers"],
        ],
    ),
    (
        "cli",
        &[
            &["failure", "units"],
            &["args", "print"],
            &["arrays"],
            &["daemon"],
            &["verbs"],
        ],
    ),
];

/// Stands before a path whose first word is a name of the file, not of the crate's root.
const RELATIVE: &str = "?";

/// A file of a crate's product, without its tests.
pub struct Source<'a> {
    pub path: &'a str,
    pub tokens: Vec<Token<'a>>,
}

#[derive(Debug)]
struct Use {
    /// The name as this file has it; `*` for all names.
    name: String,
    path: Vec<String>,
    public: bool,
    line: usize,
}

#[derive(Debug, Default)]
struct Module {
    path: Vec<String>,
    /// The length of `path` at the root of this crate: a binary beside the library is a root of its own.
    root: usize,
    items: HashSet<String>,
    children: HashSet<String>,
    uses: Vec<Use>,
    paths: Vec<(Vec<String>, usize)>,
    /// How often each name stands in the file.
    words: HashMap<String, usize>,
}

/// An import: from a file to a file, at a line of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Import {
    pub from: usize,
    pub to: usize,
    pub line: usize,
}

pub struct Graph {
    modules: Vec<Module>,
    by_path: HashMap<Vec<String>, usize>,
    known: HashSet<(usize, usize)>,
    pub imports: Vec<Import>,
    /// The type that each `impl` block is for: the file that defines it and its name.
    pub owners: Vec<(Block, usize, String)>,
}

impl Graph {
    pub fn of(sources: &[Source<'_>]) -> Graph {
        let modules: Vec<Module> = sources.iter().map(module).collect();
        let by_path = modules
            .iter()
            .enumerate()
            .map(|(index, module)| (module.path.clone(), index))
            .collect();
        let mut graph = Graph {
            modules,
            by_path,
            known: HashSet::new(),
            imports: Vec::new(),
            owners: Vec::new(),
        };
        graph.find_imports();
        for (from, source) in sources.iter().enumerate() {
            for block in types::blocks(from, &source.tokens) {
                let owner = graph.owner(from, &block.path);
                let name = block.path.last().cloned().unwrap_or_default();
                graph.add(from, owner, block.line);
                graph.owners.push((block, owner, name));
            }
        }
        graph
    }

    fn add(&mut self, from: usize, to: usize, line: usize) {
        if from != to && self.known.insert((from, to)) {
            self.imports.push(Import { from, to, line });
        }
    }

    fn find_imports(&mut self) {
        let mut found = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for item in &module.uses {
                let used = module.words.get(&item.name).is_some_and(|count| *count > 1);
                if (!item.public || used)
                    && let Some(to) = self.target(&item.path)
                {
                    found.push((from, to, item.line));
                }
            }
            for (path, line) in &module.paths {
                if let Some(to) = self.absolute(from, path).and_then(|p| self.target(&p)) {
                    found.push((from, to, *line));
                }
            }
        }
        for (from, to, line) in found {
            self.add(from, to, line);
        }
    }

    /// A path from the root, if it leads into this crate: through `crate`, a module, or a name that the file imports.
    fn absolute(&self, from: usize, path: &[String]) -> Option<Vec<String>> {
        let module = &self.modules[from];
        let relative = match path.split_first() {
            Some((first, rest)) if first == RELATIVE => rest,
            _ => return Some(path.to_vec()),
        };
        let (first, rest) = relative.split_first()?;
        let mut whole = if module.children.contains(first) {
            let mut whole = module.path.clone();
            whole.push(first.clone());
            whole
        } else {
            let item = module.uses.iter().find(|item| item.name == *first)?;
            item.path.clone()
        };
        whole.extend(rest.iter().cloned());
        Some(whole)
    }

    /// The file that defines what a path names.
    fn target(&self, path: &[String]) -> Option<usize> {
        let (index, rest) = self.module_of(path)?;
        let Some(name) = rest.first().filter(|name| *name != "*") else {
            return Some(index);
        };
        let definer = self.definer(index, name, &mut HashSet::new());
        // What a root passes on without defining it is of another crate.
        let module = &self.modules[index];
        let is_root = module.path.len() == module.root;
        definer.or((!is_root).then_some(index))
    }

    /// The innermost file on a path, and what of the path is left.
    fn module_of<'p>(&self, path: &'p [String]) -> Option<(usize, &'p [String])> {
        (0..=path.len())
            .rev()
            .find_map(|length| Some((*self.by_path.get(&path[..length])?, &path[length..])))
    }

    /// The file that defines a name which stands in file `index`, through any number of imports.
    fn definer(&self, index: usize, name: &str, seen: &mut HashSet<usize>) -> Option<usize> {
        let module = &self.modules[index];
        if module.items.contains(name) {
            return Some(index);
        }
        if !seen.insert(index) {
            return None;
        }
        if let Some(item) = module.uses.iter().find(|item| item.name == name) {
            let (next, rest) = self.module_of(&item.path)?;
            return match rest.first() {
                Some(original) => self.definer(next, original, seen),
                None => Some(next),
            };
        }
        let globs = module.uses.iter().filter(|item| item.name == "*");
        globs
            .filter_map(|item| self.module_of(&item.path))
            .filter(|(_, rest)| rest.first().is_none_or(|first| first == "*"))
            .find_map(|(next, _)| self.definer(next, name, seen))
    }

    /// The file that defines the type that an `impl` is for; the file itself if the type comes from elsewhere.
    fn owner(&self, from: usize, path: &[String]) -> usize {
        let found = match path {
            [] => None,
            [name] => self.definer(from, name, &mut HashSet::new()),
            _ => from_root(&self.modules[from], &[], path.to_vec())
                .and_then(|p| self.absolute(from, &p))
                .and_then(|p| self.target(&p)),
        };
        found.unwrap_or(from)
    }

    /// The circles of more than one file, largest first; each a sorted list of files.
    pub fn circles(&self) -> Vec<Vec<usize>> {
        let mut next = vec![Vec::new(); self.modules.len()];
        for import in &self.imports {
            next[import.from].push(import.to);
        }
        let mut circles = components(&next);
        circles.retain(|circle| circle.len() > 1);
        circles.sort_by_key(|circle| (usize::MAX - circle.len(), circle[0]));
        circles
    }

    /// The imports that stay within a circle.
    pub fn within(&self, circle: &[usize]) -> Vec<Import> {
        let holds = |file: usize| circle.binary_search(&file).is_ok();
        let imports = self.imports.iter().copied();
        imports
            .filter(|import| holds(import.from) && holds(import.to))
            .collect()
    }

    /// The imports that lead to a higher floor and the files that have none, if the crate has floors.
    pub fn upward(&self, crate_name: &str, sources: &[Source<'_>]) -> Option<Vec<Place>> {
        let (_, floors) = FLOORS.iter().find(|(name, _)| *name == crate_name)?;
        Some(self.upward_in(floors, sources))
    }

    fn upward_in(&self, floors: &[&[&str]], sources: &[Source<'_>]) -> Vec<Place> {
        let floor = |file: usize| {
            let first = self.modules[file].path.first()?;
            let found = floors
                .iter()
                .position(|names| names.contains(&first.as_str()));
            Some(found.ok_or(file))
        };
        let rises = |import: &Import| matches!((floor(import.from), floor(import.to)), (Some(Ok(from)), Some(Ok(to))) if to > from);
        let rising: Vec<Import> = self.imports.iter().copied().filter(rises).collect();
        let mut found = places(sources, &rising);
        let unplaced = (0..sources.len()).filter(|file| matches!(floor(*file), Some(Err(_))));
        found.extend(unplaced.map(|file| Place {
            path: sources[file].path.into(),
            line: 1,
            what: "has no floor: enter it in FLOORS of xtask/src/ratchet/imports.rs".into(),
        }));
        found
    }
}

pub fn places(sources: &[Source<'_>], imports: &[Import]) -> Vec<Place> {
    imports
        .iter()
        .map(|import| Place {
            path: sources[import.from].path.into(),
            line: import.line,
            what: format!("imports {}", sources[import.to].path),
        })
        .collect()
}

/// Strongly connected components (Tarjan). The stack holds as many frames as the longest chain of imports.
fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    struct Search<'a> {
        next: &'a [Vec<usize>],
        number: Vec<Option<usize>>,
        low: Vec<usize>,
        stack: Vec<usize>,
        open: Vec<bool>,
        count: usize,
        found: Vec<Vec<usize>>,
    }
    impl Search<'_> {
        fn visit(&mut self, node: usize) {
            self.number[node] = Some(self.count);
            self.low[node] = self.count;
            self.count += 1;
            self.stack.push(node);
            self.open[node] = true;
            for &other in &self.next[node] {
                match self.number[other] {
                    None => {
                        self.visit(other);
                        self.low[node] = self.low[node].min(self.low[other]);
                    }
                    Some(number) if self.open[other] => {
                        self.low[node] = self.low[node].min(number);
                    }
                    Some(_) => {}
                }
            }
            if Some(self.low[node]) == self.number[node] {
                let start = self.stack.iter().rposition(|n| *n == node).unwrap_or(0);
                let mut component = self.stack.split_off(start);
                component.iter().for_each(|n| self.open[*n] = false);
                component.sort_unstable();
                self.found.push(component);
            }
        }
    }
    let size = next.len();
    let mut search = Search {
        next,
        number: vec![None; size],
        low: vec![0; size],
        stack: Vec::new(),
        open: vec![false; size],
        count: 0,
        found: Vec::new(),
    };
    for node in 0..size {
        if search.number[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

/// The module path of a file and the length of its root: `src/a/b.rs` is `a::b`; `src/main.rs` and each file of
/// `src/bin` are roots.
fn module_path(path: &str) -> (Vec<String>, usize) {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    let mut parts: Vec<String> = inside
        .trim_end_matches(".rs")
        .split('/')
        .map(String::from)
        .collect();
    let binary = parts.len() > 1 && parts[0] == "bin";
    let last = parts.last().map(String::as_str);
    let opens_folder = last == Some("mod") || (parts.len() == 1 && last == Some("lib"));
    if opens_folder || (binary && parts.len() == 3 && last == Some("main")) {
        parts.pop();
    }
    (parts, if binary { 2 } else { 0 })
}

fn module(source: &Source<'_>) -> Module {
    let (path, root) = module_path(source.path);
    // A crate with `main.rs` alone has its modules beside it, as one with `lib.rs` has.
    let path = if path == ["main"] { Vec::new() } else { path };
    let code: Vec<Token<'_>> = source
        .tokens
        .iter()
        .filter(|token| token.kind != Kind::Comment)
        .copied()
        .collect();
    let mut module = Module {
        path,
        root,
        ..Module::default()
    };
    for token in code.iter().filter(|token| token.kind == Kind::Word) {
        *module.words.entry(token.text.into()).or_insert(0) += 1;
    }
    read_items(&mut module, &code);
    module
}

/// Reads items, `use` trees and paths, and tracks modules that stand inside the file.
fn read_items(module: &mut Module, code: &[Token<'_>]) {
    let mut depth = 0;
    let mut inline: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let token = code[at];
        // A macro may name the module: `mod $name {`.
        let ahead = at + usize::from(code.get(at + 1).is_some_and(|next| next.is("$")));
        let name = code.get(ahead + 1).filter(|next| next.kind == Kind::Word);
        let after = code.get(ahead + 2);
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inline.retain(|(opened, _)| *opened < depth + 1);
            }
            "use" if token.kind == Kind::Word && !code.get(at + 1).is_some_and(|t| t.is("<")) => {
                let end = (at..code.len()).find(|i| code[*i].is(";"));
                let end = end.unwrap_or(code.len());
                let public = at > 0 && (code[at - 1].is("pub") || code[at - 1].is(")"));
                let mut uses = Vec::new();
                use_tree(&code[at + 1..end], &mut Vec::new(), &mut uses);
                for (name, path, line) in uses {
                    if let Some(path) = from_root(module, &inline, path) {
                        module.uses.push(Use {
                            name,
                            path,
                            public,
                            line,
                        });
                    }
                }
                at = end;
            }
            "mod" if name.is_some() => {
                let name = name.map_or("", |name| name.text);
                if after.is_some_and(|after| after.is("{")) {
                    inline.push((depth + 1, name));
                    module.items.insert(name.into());
                } else {
                    module.children.insert(name.into());
                }
            }
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                if name.is_some() =>
            {
                module.items.extend(name.map(|name| name.text.to_string()));
            }
            "macro_rules" => module.items.extend(after.map(|name| name.text.to_string())),
            _ if token.kind == Kind::Word && starts_path(code, at) => {
                let (path, end) = read_path(code, at);
                if let Some(path) = from_root(module, &inline, path) {
                    module.paths.push((path, token.line));
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    place_relative_uses(module);
}

/// Puts the module's own path before uses of its children, which may be declared below; drops uses of other crates.
fn place_relative_uses(module: &mut Module) {
    let is_own = |name: &String| module.children.contains(name) || module.items.contains(name);
    let mut kept = Vec::new();
    for mut item in module.uses.drain(..) {
        if item.path.first().is_some_and(|first| first == RELATIVE) {
            if !item.path.get(1).is_some_and(is_own) {
                continue;
            }
            item.path.splice(..1, module.path.iter().cloned());
        }
        kept.push(item);
    }
    module.uses = kept;
}

fn starts_path(code: &[Token<'_>], at: usize) -> bool {
    let goes_on = code.get(at + 1).is_some_and(|next| next.is("::"));
    let inside = at > 0 && (code[at - 1].is("::") || code[at - 1].is("."));
    goes_on && !inside
}

/// The words of a path that starts at `at`, and the index of its last token.
fn read_path(code: &[Token<'_>], mut at: usize) -> (Vec<String>, usize) {
    let mut path = vec![code[at].text.to_string()];
    while code.get(at + 1).is_some_and(|next| next.is("::"))
        && let Some(next) = code.get(at + 2).filter(|next| next.kind == Kind::Word)
    {
        path.push(next.text.to_string());
        at += 2;
    }
    (path, at)
}

/// The path from the root; `RELATIVE` first where the first word may name a module of the file or a crate.
fn from_root(module: &Module, inline: &[(usize, &str)], path: Vec<String>) -> Option<Vec<String>> {
    let mut here = module.path.clone();
    here.extend(inline.iter().map(|(_, name)| name.to_string()));
    let mut words = path.into_iter().peekable();
    let mut whole = match words.peek().map(String::as_str)? {
        "crate" => {
            words.next();
            here[..module.root].to_vec()
        }
        "self" => {
            words.next();
            here
        }
        "super" => {
            while words.next_if(|word| word == "super").is_some() {
                here.pop()?;
            }
            here
        }
        _ => vec![RELATIVE.into()],
    };
    whole.extend(words);
    Some(whole)
}

/// The leaves of a `use` tree: the name it gets here, its path, its line.
fn use_tree(
    code: &[Token<'_>],
    prefix: &mut Vec<String>,
    uses: &mut Vec<(String, Vec<String>, usize)>,
) {
    let length = prefix.len();
    let mut at = 0;
    while let Some(token) = code.get(at) {
        if token.is("{") {
            let mut depth = 0;
            let mut start = at + 1;
            for (index, inner) in code.iter().enumerate().skip(at) {
                depth += usize::from(inner.is("{"));
                depth -= usize::from(inner.is("}"));
                if depth == 0 || (depth == 1 && inner.is(",")) {
                    use_tree(&code[start..index], prefix, uses);
                    start = index + 1;
                }
                if depth == 0 {
                    break;
                }
            }
            prefix.truncate(length);
            return;
        }
        if token.kind == Kind::Word || token.is("*") {
            let alias = code.get(at + 1).filter(|next| next.is("as"));
            let name = alias.and_then(|_| code.get(at + 2)).unwrap_or(token);
            if code.get(at + 1).is_none() || alias.is_some() {
                if token.text != "self" || prefix.is_empty() {
                    prefix.push(token.text.into());
                }
                let own = if token.is("self") {
                    prefix.last().cloned()
                } else {
                    None
                };
                let name = match own {
                    Some(own) if alias.is_none() => own,
                    _ => name.text.into(),
                };
                uses.push((name, prefix.clone(), token.line));
                break;
            }
            prefix.push(token.text.into());
        }
        at += 1;
    }
    prefix.truncate(length);
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

    /// The imports of a crate as `from -> to`, sorted, each path without `crates/x/src/`.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let sources = sources(files);
        let name = |file: usize| {
            sources[file]
                .path
                .trim_start_matches("crates/x/src/")
                .trim_end_matches(".rs")
        };
        let mut found: Vec<String> = Graph::of(&sources)
            .imports
            .iter()
            .map(|import| format!("{} -> {}", name(import.from), name(import.to)))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn use_of_a_tree_imports_each_file() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b; mod c;"),
            ("crates/x/src/a.rs", "use crate::{b::{B, self}, c as d};"),
            ("crates/x/src/b.rs", "pub struct B;"),
            ("crates/x/src/c/mod.rs", "use super::b::*; use std::fmt;"),
        ];
        assert_eq!(imports(&files), ["a -> b", "a -> c/mod", "c/mod -> b"]);
    }

    #[test]
    fn path_in_a_body_is_an_import() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b; fn f() { a::g() }"),
            (
                "crates/x/src/a.rs",
                "pub fn g() { crate::b::h(); Vec::new() }",
            ),
            (
                "crates/x/src/b.rs",
                "pub fn h() { let _ = \"crate::a::g\"; } // crate::a",
            ),
        ];
        assert_eq!(imports(&files), ["a -> b", "lib -> a"]);
    }

    #[test]
    fn name_that_is_passed_on_counts_for_the_file_that_defines_it() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b; pub use b::deep::B;"),
            ("crates/x/src/a.rs", "use crate::B;"),
            ("crates/x/src/b/mod.rs", "pub mod deep;"),
            ("crates/x/src/b/deep.rs", "pub struct B;"),
        ];
        assert_eq!(imports(&files), ["a -> b/deep"]);
    }

    #[test]
    fn name_of_another_crate_that_the_root_passes_on_is_no_import() {
        let files = [
            (
                "crates/x/src/lib.rs",
                "mod a; use other::units; pub use units::*;",
            ),
            ("crates/x/src/a.rs", "use crate::units::Row;"),
        ];
        assert_eq!(imports(&files), [""; 0]);
    }

    #[test]
    fn impl_for_a_type_of_another_file_is_an_import() {
        let files = [
            ("crates/x/src/lib.rs", "mod core; mod part;"),
            ("crates/x/src/core.rs", "pub struct Core<T>(T);"),
            (
                "crates/x/src/part.rs",
                "impl<T: Fn() -> u8> crate::core::Core<T> { fn f(self) {} }",
            ),
        ];
        assert_eq!(imports(&files), ["part -> core"]);
    }

    #[test]
    fn module_inside_a_file_shifts_super() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b;"),
            (
                "crates/x/src/a.rs",
                "mod inner { use super::super::b::B; use super::A; } struct A;",
            ),
            ("crates/x/src/b.rs", "pub struct B;"),
        ];
        assert_eq!(imports(&files), ["a -> b"]);
    }

    #[test]
    fn circles_are_found_largest_first() {
        let files = [
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", "use crate::c::C; pub struct B;"),
            ("crates/x/src/c.rs", "use crate::a; pub struct C;"),
            ("crates/x/src/d.rs", "use crate::e; use crate::a;"),
            ("crates/x/src/e.rs", "use crate::d;"),
            ("crates/x/src/f.rs", "use crate::a;"),
        ];
        let graph = Graph::of(&sources(&files));
        assert_eq!(graph.circles(), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(graph.within(&[3, 4]).len(), 2);
    }

    #[test]
    fn import_of_a_higher_floor_and_a_file_without_floor_are_found() {
        let files = [
            ("crates/x/src/lib.rs", "use high::H;"),
            ("crates/x/src/low.rs", "use crate::high::H;"),
            ("crates/x/src/high/mod.rs", "use crate::low; pub struct H;"),
            ("crates/x/src/new.rs", ""),
        ];
        let sources = sources(&files);
        let found = Graph::of(&sources).upward_in(&[&["low"], &["high"]], &sources);
        let paths: Vec<&str> = found.iter().map(|place| place.path.as_str()).collect();
        assert_eq!(paths, ["crates/x/src/low.rs", "crates/x/src/new.rs"]);
    }

    #[test]
    fn binary_beside_the_library_is_a_root() {
        let files = [
            ("crates/x/src/lib.rs", ""),
            (
                "crates/x/src/bin/tool/main.rs",
                "mod part; use crate::part::P;",
            ),
            ("crates/x/src/bin/tool/part.rs", "pub struct P;"),
        ];
        assert_eq!(imports(&files), ["bin/tool/main -> bin/tool/part"]);
    }
}
