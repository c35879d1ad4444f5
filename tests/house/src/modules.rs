//! Finds which files of a crate need which other files; names are resolved as the compiler resolves them.
//!
//! ```text
//! files ─ syn ─▶ of each: items, names it imports, paths it writes out
//!       ─ follow each path through imports and re-exports ─▶ the file that defines the item
//! ```
//! A path that is written out (`peers::resume(…)`, in a macro's arguments too) counts like one in a `use`;
//! `self`, `super` and `crate` mean what they mean to the compiler. A re-export is followed to the file that
//! defines the item, so that a folder's `mod.rs` hides nothing; a name that a file re-exports and uses itself is
//! needed by that file too. Tests are left out: modules below
//! `#[cfg(test)]`, and the files that they name.
//!
//! *Not seen:* items that a method call or a trait needs beyond the names in the text.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::Path,
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Item, UseTree,
    visit::{self, Visit},
};

/// Name of the crate root among the modules.
pub const ROOT: &str = "lib";

/// The files that each file of a crate needs, by module paths (`client::http1`, [`ROOT`] for the root).
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// Longest path, in segments, that is followed.
const PATH_MAX: usize = 32;

type Segments = Vec<String>;

#[derive(Default)]
struct Module {
    /// Names of the items that are defined in this file, in its inline modules too.
    items: BTreeSet<String>,
    /// Names that a `use` brings into scope, and the paths that they stand for.
    imports: HashMap<String, Segments>,
    /// Modules that are imported with a glob.
    globs: Vec<Segments>,
    /// Paths that the file's own text uses; names that it only re-exports are not among them.
    needs: Vec<Segments>,
    /// Names that the file re-exports, and the paths that they stand for.
    reexports: Vec<(String, Segments)>,
    /// First segments of the paths in the file's own text, and names of functions that it calls.
    firsts: BTreeSet<String>,
}

impl Module {
    /// Adds the names to the needs that the file re-exports and uses itself.
    fn take_own_reexports(&mut self) {
        let used = self.reexports.iter().filter(|(known_as, _)| self.firsts.contains(known_as));
        self.needs.extend(used.map(|(_, path)| path.clone()));
    }
}

/// Reads a crate's sources.
///
/// # Panics
/// If a file cannot be read or is not valid Rust.
#[must_use]
pub fn uses(crate_root: &Path) -> Uses {
    let source = crate_root.join("src");
    let mut modules: BTreeMap<Segments, Module> = BTreeMap::new();
    let roots = ["lib.rs", "main.rs"].map(|name| source.join(name));
    let root = roots.iter().find(|path| path.exists());
    let root = root.unwrap_or_else(|| panic!("{} has neither lib.rs nor main.rs", source.display()));
    let mut open = vec![(root.clone(), Segments::new())];
    while let Some((path, name)) = open.pop() {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut reader = Reader { module: Module::default(), children: Vec::new(), depth: 0 };
        reader.visit_file(&file);
        for child in reader.children {
            let below = name.iter().fold(source.clone(), |path, segment| path.join(segment));
            let places = [below.join(format!("{child}.rs")), below.join(&child).join("mod.rs")];
            let place = places.iter().find(|place| place.exists());
            let place = place.unwrap_or_else(|| panic!("{} names {child}: no such file", path.display()));
            open.push((place.clone(), [&name[..], &[child]].concat()));
        }
        reader.module.take_own_reexports();
        modules.insert(name, reader.module);
    }
    let crate_ = Crate { modules };
    crate_.modules.keys().map(|name| (text_of(name), crate_.needs_of(name))).collect()
}

fn text_of(name: &Segments) -> String {
    if name.is_empty() { ROOT.to_owned() } else { name.join("::") }
}

struct Crate {
    modules: BTreeMap<Segments, Module>,
}

impl Crate {
    fn needs_of(&self, name: &Segments) -> BTreeSet<String> {
        let needs = self.modules[name].needs.iter();
        let files = needs.filter_map(|path| self.resolve(name, path, &mut BTreeSet::new()));
        files.filter(|file| file != name).map(|file| text_of(&file)).collect()
    }

    /// Returns the file of this crate that defines the item a path leads to; `None` if the path leads to
    /// another crate.
    fn resolve(
        &self,
        from: &Segments,
        path: &[String],
        seen: &mut BTreeSet<(Segments, Segments)>,
    ) -> Option<Segments> {
        // `use rand::rand;` of another crate would be expanded to an ever longer path.
        if path.len() > PATH_MAX || !seen.insert((from.clone(), path.to_vec())) {
            return None;
        }
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.within(&Segments::new(), rest, seen),
            "self" => self.within(from, rest, seen),
            "super" => self.within(&from[..from.len().checked_sub(1)?].to_vec(), rest, seen),
            _ => self.within(from, path, seen),
        }
    }

    /// Resolves a path that begins in the module `at`.
    fn within(
        &self,
        at: &Segments,
        path: &[String],
        seen: &mut BTreeSet<(Segments, Segments)>,
    ) -> Option<Segments> {
        let module = self.modules.get(at)?;
        let Some((first, rest)) = path.split_first() else { return Some(at.clone()) };
        if matches!(first.as_str(), "self" | "super" | "crate") {
            return self.resolve(at, path, seen);
        }
        let child = [&at[..], std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return self.within(&child, rest, seen);
        }
        if module.items.contains(first) {
            return Some(at.clone());
        }
        if let Some(import) = module.imports.get(first) {
            return self.resolve(at, &[import, rest].concat(), seen);
        }
        module.globs.iter().find_map(|glob| self.resolve(at, &[glob, path].concat(), seen))
    }
}

/// Visitor that reads one file.
struct Reader {
    module: Module,
    /// Child modules that have files of their own.
    children: Vec<String>,
    /// Nesting depth of inline modules at the text that is being read.
    depth: usize,
}

impl Reader {
    fn take_use(&mut self, prefix: &Segments, tree: &UseTree, is_needed: bool) {
        match tree {
            UseTree::Path(path) => {
                let prefix = [&prefix[..], &[path.ident.to_string()]].concat();
                self.take_use(&prefix, &path.tree, is_needed);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take_use(prefix, tree, is_needed));
            }
            UseTree::Glob(_) => self.module.globs.push(prefix.clone()),
            UseTree::Name(name) => self.import(prefix, &name.ident.to_string(), None, is_needed),
            UseTree::Rename(rename) => {
                self.import(prefix, &rename.ident.to_string(), Some(rename.rename.to_string()), is_needed);
            }
        }
    }

    fn import(&mut self, prefix: &Segments, name: &str, renamed: Option<String>, is_needed: bool) {
        let path = if name == "self" { prefix.clone() } else { [&prefix[..], &[name.to_owned()]].concat() };
        let known_as = renamed.or_else(|| path.last().cloned());
        match &known_as {
            Some(_) if is_needed => self.module.needs.push(path.clone()),
            Some(known_as) => self.module.reexports.push((known_as.clone(), path.clone())),
            None => {}
        }
        // `use x;` of another crate, or of a sibling module, introduces no alias.
        if path.len() > 1 {
            self.module.imports.extend(known_as.map(|known_as| (known_as, path)));
        }
    }

    fn take_item(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => match &item.ident {
                Some(name) => name,
                None => return,
            },
            _ => return,
        };
        self.module.items.insert(name.to_string());
    }

    /// Collects the paths among the tokens of a macro's arguments.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        path.clear();
                    }
                    colons = 0;
                    path.push(name.to_string());
                    self.take_path(&path);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    (path, colons) = (Segments::new(), 0);
                    self.take_tokens(group.stream());
                }
                _ => (path, colons) = (Segments::new(), 0),
            }
        }
    }

    fn take_path(&mut self, path: &Segments) {
        // A lone name in lower case is a variable, or a function that is called.
        let is_known = |first: &String| path.len() > 1 || first.starts_with(|c: char| c.is_uppercase());
        self.module.firsts.extend(path.first().filter(|first| is_known(first)).cloned());
        // Inside an inline module, `super` means this file.
        let is_of_file = self.depth > 0 && path.first().is_some_and(|first| first == "super");
        if path.len() > 1 && !is_of_file {
            self.module.needs.push(path.clone());
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    /// A visibility names a module, but depends on nothing in it.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            self.take_item(item);
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() {
            self.children.push(item.ident.to_string());
            return;
        }
        self.module.items.insert(item.ident.to_string());
        self.depth += 1;
        visit::visit_item_mod(self, item);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_needed = matches!(item.vis, syn::Visibility::Inherited);
        self.take_use(&Segments::new(), &item.tree, is_needed && self.depth == 0);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.take_path(&path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(called) = &*call.func
            && let Some(name) = called.path.get_ident()
        {
            self.module.firsts.insert(name.to_string());
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.take_tokens(call.tokens.clone());
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item exists only for tests or fuzzing.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        matches!(&attribute.meta, syn::Meta::List(list) if is_condition_of_tests(&list.tokens.to_string()))
    })
}

/// Returns whether the condition of a `cfg` holds only in tests or fuzzing: `test`, `all(test, …)`, `any(test,
/// fuzzing)`.
#[must_use]
pub fn is_condition_of_tests(condition: &str) -> bool {
    let of_tests = |word: &str| matches!(word, "test" | "fuzzing");
    let words: Vec<&str> =
        condition.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    match words[..] {
        ["any", ref words @ ..] => words.iter().all(|word| of_tests(word)),
        ["all", ref words @ ..] => words.iter().take_while(|word| **word != "not").any(|word| of_tests(word)),
        [word] => of_tests(word),
        _ => false,
    }
}

/// Returns each set of files that can all be reached from one another.
#[must_use]
pub fn circles(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(at) = open.pop() {
            for to in uses.get(&at).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|name| (name, reached(name))).collect();
    let circle = |name: &String| {
        let both =
            reach[name].iter().filter(|other| reach.get(other).is_some_and(|back| back.contains(name)));
        both.cloned().collect::<BTreeSet<_>>()
    };
    uses.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}
