/** The daemon's metrics in the text format of Prometheus. */
import test from "ava";
import { CallMetrics } from "../../../src/observability/metrics/call-metrics.ts";
import { Histogram, writeFamily, writeHistograms } from "../../../src/observability/metrics/exposition.ts";

test("a family has its help, its type and a line for each sample", (t) => {
  t.is(
    writeFamily("n", "gauge", "What\\it\nis.", [
      { value: 1.5 },
      { labels: { name: 'a"b\\c\nd', code: 7 }, value: Infinity },
    ]),
    '# HELP n What\\\\it\\nis.\n# TYPE n gauge\nn 1.5\nn{name="a\\"b\\\\c\\nd",code="7"} +Inf\n',
  );
  t.is(writeFamily("n", "gauge", "Nothing.", []), "");
});

test("buckets of a histogram are cumulative and include their upper bound", (t) => {
  const histogram = new Histogram([0.1, 1]);
  for (const value of [0.05, 0.1, 0.5, 2]) histogram.observe(value);
  t.is(
    writeHistograms("d", "D.", [{ labels: { x: "y" }, histogram }]),
    [
      "# HELP d D.",
      "# TYPE d histogram",
      'd_bucket{x="y",le="0.1"} 2',
      'd_bucket{x="y",le="1"} 3',
      'd_bucket{x="y",le="+Inf"} 4',
      'd_sum{x="y"} 2.65',
      'd_count{x="y"} 4',
      "",
    ].join("\n"),
  );
});

test("counting a call has little overhead", (t) => {
  const metrics = new CallMetrics();
  const call = { method: "svc.v1.AppService/ListApps", protocolName: "rest", code: "ok", durationMs: 3 };
  const rounds = 100_000;
  for (let n = 0; n < rounds; n++) metrics.observe(call);
  const startMs = performance.now();
  for (let n = 0; n < rounds; n++) metrics.observe(call);
  const costUs = ((performance.now() - startMs) * 1000) / rounds;
  t.log(`${costUs.toFixed(3)} µs per call`);
  t.true(costUs < 5);
  t.regex(metrics.write(), /svc_calls_total\{method="svc.v1.AppService\/ListApps",code="ok"\} 200000\n/);
});
