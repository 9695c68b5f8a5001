//! The style sheet of figures.
//!
//! Colours of series are those of Okabe and Ito, which readers with any colour vision can distinguish, without
//! their yellow, which is too light on white. The dark sheet has lighter ones of the same hues.

/// Colours of series; beyond these they begin again, with other dashes and marks.
pub(crate) const COLOURS: usize = 9;
/// Steps of a heat map's shade.
pub(crate) const SHADES: usize = 7;

/// For `<style>`, in an SVG or in a page.
pub(crate) const SHEET: &str = "\
.plot{--ink:#1c2430;--paper:#fff;--faint:#dde3ea;--soft:#5b6878;--shade:#fdf3dc;\
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b8548c;--s4:#c98a00;--s5:#3a9fd8;--s6:#6a4fb0;--s7:#7a5230;--s8:#5b6878;\
--h0:#eef4fa;--h1:#d3e3f2;--h2:#b0cfe8;--h3:#82b4da;--h4:#5293c8;--h5:#2a6fad;--h6:#0b4f8a}
@media screen and (prefers-color-scheme:dark){.plot{--ink:#e2e8f0;--paper:#0f1620;--faint:#2b3646;--soft:#9aa8ba;--shade:#2b2718;\
--s0:#56b4f0;--s1:#ff8f4a;--s2:#3fcf9f;--s3:#ee9cc6;--s4:#f0bd4a;--s5:#9ad8ff;--s6:#b7a3ef;--s7:#cfa27c;--s8:#9aa8ba;\
--h0:#16222f;--h1:#183048;--h2:#1c4263;--h3:#22587f;--h4:#2f73a3;--h5:#4f97c8;--h6:#86c1ea}}
.plot{display:block;width:100%;height:auto}
.plot text{font:13px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;fill:var(--ink)}
.plot .title{font-size:15px;font-weight:600}.plot .small{font-size:12px}.plot .group{font-weight:600}
.plot .soft{fill:var(--soft)}.plot .bright{fill:var(--paper)}
.plot .paper{fill:var(--paper)}.plot .shade{fill:var(--shade)}
.plot .grid{stroke:var(--faint)}.plot .axis{stroke:var(--soft)}.plot .mark{stroke:var(--soft);stroke-dasharray:3 3}
.plot .whisker{stroke:var(--ink);stroke-width:1.2}
.plot .line{fill:none;stroke-width:1.8;stroke-linejoin:round}.plot .band{stroke:none;opacity:.18}
.plot .dot{stroke:var(--paper);stroke-width:1}
.plot .l0{stroke:var(--s0)}.plot .l1{stroke:var(--s1)}.plot .l2{stroke:var(--s2)}.plot .l3{stroke:var(--s3)}\
.plot .l4{stroke:var(--s4)}.plot .l5{stroke:var(--s5)}.plot .l6{stroke:var(--s6)}.plot .l7{stroke:var(--s7)}.plot .l8{stroke:var(--s8)}
.plot .f0{fill:var(--s0)}.plot .f1{fill:var(--s1)}.plot .f2{fill:var(--s2)}.plot .f3{fill:var(--s3)}\
.plot .f4{fill:var(--s4)}.plot .f5{fill:var(--s5)}.plot .f6{fill:var(--s6)}.plot .f7{fill:var(--s7)}.plot .f8{fill:var(--s8)}
.plot .h0{fill:var(--h0)}.plot .h1{fill:var(--h1)}.plot .h2{fill:var(--h2)}.plot .h3{fill:var(--h3)}\
.plot .h4{fill:var(--h4)}.plot .h5{fill:var(--h5)}.plot .h6{fill:var(--h6)}
";
