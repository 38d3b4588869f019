import test from "ava";
import fc from "fast-check";
import { createPaint, wantsColor } from "../../src/cli/output/color.ts";
import {
  escapeCell,
  escapeControls,
  escapeKeepingStyles,
  escapeLines,
  formatJson,
} from "../../src/cli/output/escape.ts";
import { ProgressLine, progressText, TransferRate } from "../../src/cli/output/progress.ts";
import { chooseColumns } from "../../src/cli/output/choose-columns.ts";
import { appColumns } from "../../src/cli/output/app-table.ts";
import { renderFields, renderTable, type Column } from "../../src/cli/output/table.ts";
import type { App, HostMetrics } from "../../src/cli/client/calls.ts";
import { hostLines } from "../../src/cli/output/host-screen.ts";
import { formatAge, formatBytes, formatDuration } from "../../src/cli/output/units.ts";
import { textWidth, truncate } from "../../src/cli/output/width.ts";

const plain = createPaint(false);

for (const [bytes, text] of [
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1.0 KiB"],
  [1536, "1.5 KiB"],
  [1024 * 100, "100 KiB"],
  [1024 ** 2 - 1, "1.0 MiB"],
  [3 * 1024 ** 3, "3.0 GiB"],
] as const) {
  test(`${bytes} bytes are shown as ${text}`, (t) => t.is(formatBytes(bytes), text));
}

for (const [durationMs, text] of [
  [-5, "0s"],
  [999, "0s"],
  [61_000, "1m 1s"],
  [3_600_000, "1h"],
  [93_784_000, "1d 2h"],
  [400 * 86_400_000, "1y 35d"],
] as const) {
  test(`${durationMs} ms are shown as ${text}`, (t) => t.is(formatDuration(durationMs), text));
}

test("an age is relative to now, and empty for an absent instant", (t) => {
  t.is(formatAge("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:01:00Z")), "1m ago");
  t.is(formatAge(undefined, 0), "");
});

test("control characters are escaped", (t) => {
  t.is(escapeControls("a\x1b]0;x\x07\x9b2J\u202e\tb"), "a\\x1b]0;x\\x07\\x9b2J\\u202e\tb");
  t.is(escapeCell("a\tb\n"), "a b\\x0a");
  t.is(escapeLines("a\r\nb\x1b"), "a\nb\\x1b");
});

for (const [title, line, shown] of [
  ["keeps its colors and ends with a reset", "\x1b[1;31mred\x1b[39m", "\x1b[1;31mred\x1b[39m\x1b[0m"],
  ["keeps colors of 24 bits", "\x1b[38:2::255:0:0mred", "\x1b[38:2::255:0:0mred\x1b[0m"],
  ["loses all other sequences", "\x1b[2J\x1b[31mred\x1b]0;x\x07", "\\x1b[2J\x1b[31mred\\x1b]0;x\\x07\x1b[0m"],
  ["loses private and unfinished sequences", "\x1b[?25m\x1b[>4;2m\x1b[31", "\\x1b[?25m\\x1b[>4;2m\\x1b[31"],
  ["without colors gets no reset", "plain", "plain"],
] as const) {
  test(`a log line with styles: it ${title}`, (t) => {
    t.is(escapeKeepingStyles(line), shown);
  });
}

test("no text leaves a byte that a terminal interprets", (t) => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      t.notRegex(escapeCell(text), /[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/);
    }),
  );
});

test("JSON keeps its value, and is safe to print", (t) => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      const json = formatJson({ text }, 0);
      t.deepEqual(JSON.parse(json), { text });
      t.notRegex(json.trimEnd(), /[\x00-\x1f\x7f-\x9f\u202a-\u202e]/);
    }),
  );
});

test("wide characters count twice and combining marks not at all", (t) => {
  t.is(textWidth("abc"), 3);
  t.is(textWidth("日本"), 4);
  t.is(textWidth("e\u0301"), 1);
  t.is(truncate("日本語", 5), "日本…");
  t.is(truncate("abcdef", 4), "abc…");
});

test("a table is aligned, escaped, and cut to the terminal", (t) => {
  const columns = [
    { title: "NAME", value: (row: [string, number]) => row[0], shrinkTo: 4 },
    { title: "N", value: (row: [string, number]) => String(row[1]), align: "right" },
  ] as const;
  const rows: [string, number][] = [
    ["long\x1bname", 1],
    ["b", 1000],
  ];
  t.is(
    renderTable(columns, rows, { paint: plain, columns: undefined }),
    "NAME             N\nlong\\x1bname     1\nb             1000\n",
  );
  t.is(
    renderTable(columns, rows, { paint: plain, columns: 12 }),
    "NAME       N\nlong\\…     1\nb       1000\n",
  );
});

test("in a pipe nothing is cut, and a very wide cell does not widen other rows", (t) => {
  const columns = [
    { title: "A", value: ([a = ""]: string[]) => a, shrinkTo: 4 },
    { title: "B", value: ([, b = ""]: string[]) => b },
  ];
  const wide = "x".repeat(5_000);
  const text = renderTable(
    columns,
    [
      [wide, "1"],
      ["y", "2"],
    ],
    { paint: plain, columns: undefined },
  );
  t.deepEqual(text.split("\n").slice(1), [`${wide}  1`, `${"y".padEnd(80)}  2`, ""]);
});

test("lines of a table fit the terminal, unless nothing may be cut", (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.string(), { minLength: 1 }),
      fc.integer({ min: 12, max: 60 }),
      (names, columns) => {
        const text = renderTable([{ title: "NAME", value: (name: string) => name, shrinkTo: 4 }], names, {
          paint: plain,
          columns,
        });
        for (const line of text.split("\n")) t.true(textWidth(line) <= columns);
      },
    ),
  );
});

test("a narrow terminal drops empty columns first, then the most dispensable, then the rightmost", (t) => {
  const column = (title: string, at: number, more: Partial<Column<string[]>> = {}): Column<string[]> => ({
    title,
    value: (row) => row[at] ?? "",
    ...more,
  });
  const columns = [
    column("ID", 0),
    column("NOTE", 1),
    column("SIZE", 2, { dispensable: 1 }),
    column("STATE", 3),
    column("EMPTY", 4),
  ];
  const rows = [["an-id-of-20-columns-", "note", "12 MiB", "RUNNING", ""]];
  const titlesAt = (width: number) =>
    renderTable(columns, rows, { paint: plain, columns: width }).split("\n", 1)[0]?.split(/ +/);
  t.deepEqual(titlesAt(50), ["ID", "NOTE", "SIZE", "STATE", "EMPTY"]);
  t.deepEqual(titlesAt(49), ["ID", "NOTE", "SIZE", "STATE"]);
  t.deepEqual(titlesAt(42), ["ID", "NOTE", "STATE"]);
  t.deepEqual(titlesAt(34), ["ID", "NOTE"]);
  t.deepEqual(titlesAt(25), ["ID"]);
  t.is(
    renderTable(columns, rows, { paint: plain, columns: 10 }),
    "ID\nan-id-of-20-columns-\n",
    "a key column is not cut",
  );
  const chosen = chooseColumns(columns, ["state", "size", "id"]);
  t.regex(
    renderTable(chosen, rows, { paint: plain, columns: 20 }),
    /^STATE +SIZE +ID\n/,
    "selected columns stay",
  );
});

test("a list of apps fits 40, 60 and 80 columns, and keeps full IDs, states and ports longest", (t) => {
  const app = { state: "RUNNING", health: "none", runtime: "docker", owner: 1000, owner_name: "ada" };
  const port = { name: "http", port: 8123, protocol: "tcp" };
  const apps = [
    { ...app, id: "home-assistant-2", name: "Home Assistant", version: "v2026.11.3-beta.1", restarts: 0 },
    { ...app, id: "db", name: "db", version: "v1", restarts: 4, health: "unhealthy" },
  ].map((each) => ({ ...each, ports: [port] }) as unknown as App);
  for (const [width, titles] of [
    [40, /^ID +STATE +PORTS$/],
    [60, /^ID +STATE +VERSION +PORTS +RESTARTS$/],
    [80, /^ID +NAME +STATE +VERSION +RUNTIME +PORTS +UPTIME +RESTARTS$/],
  ] as const) {
    const text = renderTable(appColumns(0, apps), apps, { paint: plain, columns: width });
    for (const line of text.split("\n")) t.true(textWidth(line) <= width, `${width}: ${line}`);
    t.regex(text.split("\n", 1)[0] ?? "", titles);
    t.regex(text, /^home-assistant-2 /m);
  }
});

test("fields without a value are left out", (t) => {
  const text = renderFields(
    [
      ["Id", "a"],
      ["Nothing", undefined],
      ["Empty", ""],
      ["State", "RUNNING", "green"],
    ],
    createPaint(true),
  );
  t.is(text, "\x1b[1mId:\x1b[22m    a\n\x1b[1mState:\x1b[22m \x1b[32mRUNNING\x1b[39m\n");
});

for (const [env, isTerminal, option, expected] of [
  [{}, true, true, true],
  [{}, false, true, false],
  [{}, true, false, false],
  [{ TERM: "dumb" }, true, true, false],
  [{ NO_COLOR: "1" }, true, true, false],
  [{ NO_COLOR: "" }, true, true, true],
  [{ FORCE_COLOR: "1" }, false, true, true],
  [{ FORCE_COLOR: "0" }, true, true, false],
  [{ FORCE_COLOR: "1", NO_COLOR: "1" }, true, true, false],
] as const) {
  test(`color: ${JSON.stringify(env)}, terminal ${isTerminal}, option ${option}`, (t) =>
    t.is(wantsColor(env, isTerminal, option), expected));
}

test("progress shows bytes and percentage", (t) => {
  t.is(
    progressText({ step: "copy", message: "data\x1b", doneBytes: 1024, totalBytes: 4096 }),
    "Copying 1.0 KiB of 4.0 KiB (25%) · data\\x1b",
  );
  t.is(progressText({ step: "fetch", message: "" }), "Fetching");
});

test("progress shows speed and remaining time", (t) => {
  const total = { step: "read", message: "", totalBytes: 4 << 20 };
  t.is(
    progressText({ ...total, doneBytes: 1 << 20 }, 1 << 19),
    "Reading 1.0 MiB of 4.0 MiB (25%) · 512 KiB/s · 6s left",
  );
  t.is(progressText({ ...total, doneBytes: 1 << 20 }, 0), "Reading 1.0 MiB of 4.0 MiB (25%) · 0 B/s");
  t.is(progressText({ step: "send", message: "", doneBytes: 2048 }, 1024), "Sending 2.0 KiB · 1.0 KiB/s");
});

test("a rate covers only the last seconds", (t) => {
  const rate = new TransferRate();
  t.is(rate.at(0, 500), undefined);
  t.is(rate.at(999, 700), undefined, "too early to say");
  t.is(rate.at(2000, 2500), 1000);
  for (let second = 3; second <= 13; second++) rate.at(second * 1000, 2500);
  t.is(rate.at(14_000, 2500), 0, "earlier speed does not count");
  t.is(rate.at(15_000, 100), undefined, "a new transfer has started");
});

test("progress in bytes is drawn only on a terminal, ten times a second at most", (t) => {
  const written = { terminal: "", pipe: "" };
  let nowMs = 0;
  const lineTo = (where: keyof typeof written) => {
    const stderr = { isTTY: where === "terminal", write: (text: string) => (written[where] += text) };
    return new ProgressLine({ stderr, now: () => nowMs } as never, "backup x");
  };
  for (const where of ["terminal", "pipe"] as const) {
    nowMs = 0;
    using line = lineTo(where);
    line.update({ step: "wait", message: "" });
    for (; nowMs < 2000; nowMs += 10) line.update({ step: "read", message: "", doneBytes: nowMs });
  }
  t.is(written.pipe, "backup x: Waiting\n");
  const drawn = written.terminal.split("\r\x1b[K").slice(1);
  t.is(drawn.length, 22, "one per tenth of a second");
  t.deepEqual(
    [drawn[0], drawn[1], drawn.at(-2), drawn.at(-1)],
    ["backup x: Waiting", "backup x: Reading 0 B", "backup x: Reading 1.9 KiB · 1000 B/s", ""],
  );
});

test("progress is shown on a terminal of unknown width", (t) => {
  let written = "";
  const stderr = { isTTY: true, columns: 0, write: (text: string) => (written += text) };
  const line = new ProgressLine({ stderr, now: () => 0 } as never, "backup x");
  line.update({ step: "read", message: "" });
  t.is(written, "\r\x1b[Kbackup x: Reading");
});

test("progress numbers its steps, and a message that begins with the step's name is its title", (t) => {
  const build = { step: "build", message: "$ make", stepNumber: 2, stepCount: 4 };
  t.is(progressText(build), "[2/4] Building · $ make");
  t.is(progressText({ ...build, service: "web" }), "[2/4] Building · web · $ make");
  t.is(progressText({ ...build, stepCount: undefined }), "[2] Building · $ make");
  t.is(progressText({ ...build, stepNumber: 1, stepCount: 1 }), "Building · $ make");
  const fetch = { step: "fetch", message: "Fetching v1.0 of https://example.org", doneBytes: 2048 };
  t.is(progressText(fetch), "Fetching v1.0 of https://example.org 2.0 KiB");
});

test("a numbered step that took long stays on the terminal with its duration, a short one does not", (t) => {
  let [written, nowMs] = ["", 0];
  const stderr = { isTTY: true, columns: 80, write: (text: string) => (written += text) };
  using line = new ProgressLine({ stderr, now: () => nowMs } as never, "install x");
  line.update({ step: "fetch", message: "", stepNumber: 1, stepCount: 3 });
  nowMs = 1000;
  line.update({ step: "build", message: "", stepNumber: 2, stepCount: 3 });
  nowMs = 13_000;
  line.update({ step: "trial", message: "", stepNumber: 3, stepCount: 3 });
  const shown = written.split("\n").map((each) => each.split("\r\x1b[K").at(-1));
  t.deepEqual(shown, ["install x: [2/3] Building · 12s", "install x: [3/3] Starting"]);
});

test("without a terminal each numbered step prints one line, for each service once", (t) => {
  let written = "";
  const stderr = { isTTY: false, write: (text: string) => (written += text) };
  using line = new ProgressLine({ stderr, now: () => 0 } as never, "install x");
  const pull = { step: "pull", message: "", stepNumber: 1, stepCount: 2, doneBytes: 1 };
  for (const service of ["web", "db", "web"]) line.update({ ...pull, service });
  line.update({ step: "build", message: "", stepNumber: 2, stepCount: 2 });
  t.is(written, "install x: [1/2] Pulling · web\ninstall x: [1/2] Pulling · db\ninstall x: [2/2] Building\n");
});

test("without a terminal a step with several phases prints only the first one", (t) => {
  let written = "";
  const stderr = { isTTY: false, write: (text: string) => (written += text) };
  using line = new ProgressLine({ stderr, now: () => 0 } as never, "install x");
  line.update({ step: "resolve", message: "Reading the versions of x.git", stepNumber: 1 });
  line.update({ step: "fetch", message: "Fetching v1.0.0 of x.git", stepNumber: 1 });
  t.is(written, "install x: [1] Reading the versions of x.git\n");
});

test("parallel transfers have separate rates", (t) => {
  let [written, nowMs] = ["", 0];
  const stderr = { isTTY: true, columns: 200, write: (text: string) => (written += text) };
  using line = new ProgressLine({ stderr, now: () => nowMs } as never, "backup x");
  for (; nowMs <= 4000; nowMs += 1000) {
    line.update({ step: "push", message: "slow", doneBytes: nowMs / 10, totalBytes: 8000 });
    nowMs += 500;
    line.update({ step: "push", message: "fast", doneBytes: nowMs, totalBytes: 8000 });
  }
  t.regex(written, / 100 B\/s · [^\r]* · slow/);
  t.regex(written, / 1000 B\/s · [^\r]* · fast/);
});

test("svc host omits the interfaces of containers, and shortens long paths", (t) => {
  const traffic = { receivedBytes: 1, sentBytes: 1, receivedPerSec: 0, sentPerSec: 0 };
  const interfaces = ["eth0", "docker0", "veth12ab", "br-0a1b"].map((name) => ({ name, ...traffic }));
  const filesystem = { path: `/${"d".repeat(60)}/end`, sizeBytes: 1, usedBytes: 0, availableBytes: 1 };
  const figures = {
    ...{ uptimeSecs: 1, cpuPercent: 0, cpuCount: 1, load1: 0, load5: 0, load15: 0 },
    ...{ memoryTotalBytes: 1, memoryAvailableBytes: 1, swapTotalBytes: 0, swapUsedBytes: 0 },
    ...{ filesystems: [filesystem], disks: [], temperatures: [], interfaces },
  };
  const lines = hostLines([figures as unknown as HostMetrics], plain).split("\n");
  t.deepEqual(
    lines.filter((line) => line.startsWith("Network")).map((line) => line.split(":")[0]),
    ["Network eth0"],
  );
  t.true(lines.some((line) => line.startsWith(`Disk …${"d".repeat(27)}/end: `)));
});
