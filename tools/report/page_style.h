// The style of the pages that `lockstep report` prints. The colours of causes
// are those of Okabe and Ito, which colour-blind people can tell apart; those
// of maps go from light to dark in one hue, and the other way in the dark.
// Internal.
//
//   absl::StrAppend(&html, "<style>", kPageStyle, "</style>");
#ifndef LOCKSTEP_TOOLS_REPORT_PAGE_STYLE_H_
#define LOCKSTEP_TOOLS_REPORT_PAGE_STYLE_H_

namespace lockstep::internal_report {

inline constexpr char kPageStyle[] = R"css(
:root{color-scheme:light dark;
--page:#fff;--text:#1b1f24;--soft:#57606a;--rule:#d8dee4;--panel:#f6f8fa;
--grid:#e7ebef;--good:#116329;--warn:#8a4600;--bad:#b3202c;--link:#0b5cad;
--data:#e69f00;--others:#0072b2;--transfer:#56b4e9;--between:#cc79a7;
--own:#c3cad2;--line:#1b1f24;--first:#0072b2;--second:#d55e00;
--hatch:#b4bcc5;
--r0:#dbe9f6;--r1:#a9cee6;--r2:#63a8d3;--r3:#2a77b8;--r4:#08407f;
--l0:#fcead2;--l1:#f9c588;--l2:#ec9142;--l3:#c05a10;--l4:#742f05}
@media(prefers-color-scheme:dark){:root{
--page:#0f1419;--text:#e6eaef;--soft:#9da7b3;--rule:#333b45;--panel:#181e25;
--grid:#262d36;--good:#6fd08c;--warn:#f0b04a;--bad:#ff8f86;--link:#7cb8f5;
--data:#e69f00;--others:#3b9be0;--transfer:#9ad4f5;--between:#d98fb8;
--own:#4c5662;--line:#f2f4f7;--first:#56b4e9;--second:#f0923f;
--hatch:#4c5662;
--r0:#16304b;--r1:#1f5183;--r2:#3a7dbb;--r3:#74aedc;--r4:#d3e7f8;
--l0:#3b2412;--l1:#70400f;--l2:#b5651c;--l3:#ee9c4b;--l4:#ffdfb5}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",
"Noto Sans","Liberation Sans",Arial,sans-serif;overflow-wrap:anywhere}
main{max-width:1132px;margin:0 auto;padding:24px 16px 64px}
h1,h2,h3,p,dl,dd,ul,pre,figure{margin:0}
h1{font-size:20px;line-height:1.3;font-weight:650}
h2{font-size:18px;line-height:1.3;font-weight:650;margin-bottom:4px}
h3{font-size:14px;line-height:1.4;font-weight:600}
section{margin-top:40px;padding-top:20px;border-top:1px solid var(--rule)}
.about{color:var(--soft);margin-top:2px}
.lead{color:var(--soft);max-width:76ch;margin-bottom:14px}
.note{color:var(--soft);font-size:13px;margin-top:6px}
.path{font-weight:400;color:var(--soft)}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,
"Liberation Mono",monospace;font-size:13px}
.pair{display:grid;gap:16px 32px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr))}
.pair .sentence{font-size:18px}
.pair .verdict{margin-top:8px}
.verdict{margin-top:20px;padding:2px 0 2px 16px;
border-left:4px solid var(--level)}
.level{font-weight:650;color:var(--level);font-size:14px}
.sentence{font-size:24px;line-height:1.3;font-weight:600;margin:2px 0 6px;
max-width:44ch;letter-spacing:-.01em}
.second .sentence{font-size:17px;max-width:66ch}
.advice{max-width:76ch}
.advice+.advice{margin-top:8px}
.good{--level:var(--good)}.warn{--level:var(--warn)}.bad{--level:var(--bad)}
.plain{--level:var(--soft)}
.ends{list-style:none;padding:0}
.alarm{color:var(--bad);font-weight:650}
.message{white-space:pre-wrap;background:var(--panel);padding:10px 12px;
margin:8px 0;border-radius:6px;max-height:22em;overflow:auto}
.numbers{display:grid;gap:14px 24px;margin-top:22px;
grid-template-columns:repeat(auto-fit,minmax(128px,1fr))}
.numbers dt{color:var(--soft);font-size:13px}
.numbers dd{font-size:20px;line-height:1.3;font-weight:600;
font-variant-numeric:tabular-nums}
.numbers small{display:block;font-size:13px;font-weight:400;
color:var(--soft)}
.notes{margin-top:22px;padding:10px 14px;background:var(--panel);
border-left:4px solid var(--warn)}
.notes ul{padding-left:18px}
.scroll{overflow-x:auto;margin-top:2px;
background:linear-gradient(90deg,var(--page) 50%,transparent) 0/32px 100%,
linear-gradient(270deg,var(--page) 50%,transparent) 100%/32px 100%,
linear-gradient(90deg,var(--rule),transparent) 0/12px 100%,
linear-gradient(270deg,var(--rule),transparent) 100%/12px 100%;
background-repeat:no-repeat;background-attachment:local,local,scroll,scroll}
.scroll:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:13px;line-height:1.4;
font-variant-numeric:tabular-nums}
.wide{width:100%}
.caption{color:var(--soft);font-size:13px;margin-top:14px}
th,td{padding:4px 10px;text-align:left;border-bottom:1px solid var(--rule);
vertical-align:middle;font-weight:400;overflow-wrap:normal}
td:first-child,th:first-child{padding-left:0}
td:last-child,th:last-child{padding-right:0}
thead th{color:var(--soft);vertical-align:bottom;border-bottom-width:2px;
white-space:nowrap}
tbody th{font-weight:600}
.n{text-align:right;white-space:nowrap}
.whole{white-space:nowrap}
.long{display:inline-block;min-width:14em;overflow-wrap:anywhere}
.w{min-width:140px;width:20%}
svg{display:block;width:100%;overflow:visible}
.bar{height:14px}
.bar rect{stroke:var(--page);stroke-width:1}
.big .bar{height:36px}
.key{display:flex;flex-wrap:wrap;gap:2px 18px;margin:8px 0 0;padding:0;
list-style:none;font-size:13px}
.key i,th i{display:inline-block;width:11px;height:11px;margin-right:6px;
vertical-align:-1px;border-radius:2px;background:var(--fill)}
.key i.stroke{height:0;width:16px;border-radius:0;vertical-align:4px;
background:none;border-top:2px solid var(--fill)}
.key i.dashed{border-top-style:dashed}
.key b{font-weight:600;font-variant-numeric:tabular-nums}
.data{fill:var(--data);--fill:var(--data)}
.others{fill:var(--others);--fill:var(--others)}
.transfer{fill:var(--transfer);--fill:var(--transfer)}
.between{fill:var(--between);--fill:var(--between)}
.own{fill:var(--own);--fill:var(--own)}
.slowest,.mean{stroke:var(--line);--fill:var(--line)}
.band{fill:var(--transfer);--fill:var(--transfer);opacity:.45}
.first{stroke:var(--first);--fill:var(--first)}
.two{stroke:var(--second);--fill:var(--second)}
figure{margin-top:18px}
figcaption{margin-bottom:8px}
.plot{margin:6px 0 26px 62px;width:calc(100% - 62px);font-size:12px}
.map{margin-left:34px;width:calc(100% - 34px)}
.plot text{fill:var(--soft);text-anchor:middle;
font-variant-numeric:tabular-nums}
.plot .side,.plot .right{text-anchor:end}
.plot .left{text-anchor:start}
.grid,.tick{stroke:var(--grid);shape-rendering:crispEdges}
.tick{stroke:var(--soft)}
.line,.points{fill:none;stroke-width:1.6;stroke-linejoin:round;
stroke-linecap:round;vector-effect:non-scaling-stroke}
.points{stroke-width:6}
.line.two{stroke-dasharray:5 4}
.map path{fill:none;stroke-width:1;shape-rendering:crispEdges}
.map,.key .hatch{background:repeating-linear-gradient(135deg,
var(--hatch) 0 1px,transparent 1px 5px)}
.rows .c0{stroke:var(--r0);--fill:var(--r0)}
.rows .c1{stroke:var(--r1);--fill:var(--r1)}
.rows .c2{stroke:var(--r2);--fill:var(--r2)}
.rows .c3{stroke:var(--r3);--fill:var(--r3)}
.rows .c4{stroke:var(--r4);--fill:var(--r4)}
.lost .c0{stroke:var(--l0);--fill:var(--l0)}
.lost .c1{stroke:var(--l1);--fill:var(--l1)}
.lost .c2{stroke:var(--l2);--fill:var(--l2)}
.lost .c3{stroke:var(--l3);--fill:var(--l3)}
.lost .c4{stroke:var(--l4);--fill:var(--l4)}
.curves{display:grid;gap:20px 28px;margin-top:14px;
grid-template-columns:repeat(auto-fill,minmax(min(100%,310px),1fr))}
.curves figure{margin:0;min-width:0}
.curves .note,.curves .alarm{margin-top:0}
details{margin-top:14px}
summary{cursor:pointer;color:var(--link)}
.job{white-space:pre-wrap;background:var(--panel);padding:12px;
border-radius:6px;margin-top:10px}
.changes{list-style:none;padding:0}
.changes li{padding:1px 8px;white-space:pre-wrap;border-left:3px solid}
.changes .gone{border-color:var(--first)}
.changes .new{border-color:var(--second)}
footer{margin-top:48px;color:var(--soft);font-size:13px}
@media(min-width:700px){main{padding:36px 24px 80px}
.sentence{font-size:28px}}
@media print{main{max-width:none;padding:0}section{break-inside:avoid-page}}
)css";

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_PAGE_STYLE_H_
