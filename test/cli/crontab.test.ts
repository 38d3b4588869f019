import test from "ava";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { readCrontab } from "../../src/cli/crontab/crontab.ts";
import { shellCommand } from "../../src/cli/crontab/command.ts";

const run = promisify(execFile);

interface LineCase {
  title: string;
  text: string;
  trigger?: string;
  command?: string;
  timeZone?: string;
  comment?: string;
  problem?: RegExp;
  note?: RegExp;
  withUsers?: boolean;
}

const cases: LineCase[] = [
  {
    title: "five fields",
    text: "*/5 0-6 1,15 * 1-5  echo hi ",
    trigger: "*/5 0-6 1,15 * 1-5",
    command: "echo hi",
  },
  {
    title: "tabs between the fields",
    text: "0\t1 *\t* *\tdate -u",
    trigger: "0 1 * * *",
    command: "date -u",
  },
  { title: "leading blanks", text: "  0 1 * * * date", trigger: "0 1 * * *", command: "date" },
  { title: "line ends of another system", text: "0 1 * * * date\r\n", trigger: "0 1 * * *", command: "date" },
  { title: "names of months and days", text: "0 0 * JAN,mar-May Mon-Fri x", trigger: "0 0 * 1,3-5 1-5" },
  { title: "a range up to Sunday", text: "0 0 * * fri-SUN x", trigger: "0 0 * * 5-7" },
  { title: "only Sunday", text: "0 0 * * sun x", trigger: "0 0 * * 0" },
  { title: "names in the wrong fields stay", text: "0 0 * mon dec x", trigger: "0 0 * mon dec" },
  { title: "longer words are not names", text: "0 0 * * monday x", trigger: "0 0 * * monday" },
  ...[
    "nohup /srv/x.sh",
    "cd /srv && nohup ./x.sh > log 2>&1 &",
    "setsid x",
    "(x &)",
    "x & y",
    "x&",
    "su -c 'nohup x &' them",
  ].map((command) => ({
    title: `a background process: ${command}`,
    text: `@daily ${command}`,
    note: /svc schedule edit JOB --keep-children/,
  })),
  ...[
    "x && y",
    "x > /dev/null 2>&1",
    "x &> log",
    "x >& log",
    "x |& y",
    "curl 'http://h/?a=1&b=2'",
    'curl "http://h/?a=1&b=2"',
    "curl http://h/?a=1\\&b=2",
    "x & y; wait",
    "nohups",
  ].map((command) => ({ title: `no background process: ${command}`, text: `@daily ${command}` })),
  { title: "a hyphen, which keeps cron from logging", text: "-*/15 * * * * x", trigger: "*/15 * * * *" },
  { title: "@hourly", text: "@hourly x", trigger: "0 * * * *", command: "x" },
  { title: "@daily", text: "@daily x", trigger: "0 0 * * *" },
  { title: "@midnight", text: "@Midnight x", trigger: "0 0 * * *" },
  { title: "@weekly", text: "@weekly x", trigger: "0 0 * * 0" },
  { title: "@monthly", text: "@monthly x", trigger: "0 0 1 * *" },
  { title: "@yearly", text: "@yearly x", trigger: "0 0 1 1 *" },
  { title: "@annually", text: "@annually x", trigger: "0 0 1 1 *" },
  { title: "@reboot", text: "@reboot x", problem: /^@reboot is not supported/ },
  {
    title: "@fortnightly",
    text: "@fortnightly x",
    problem: /"@fortnightly" is not known; it must be @hourly/,
  },
  { title: "no command", text: "0 0 * * *", problem: /must be a time and a command/ },
  { title: "a single word", text: "hello", problem: /must be a time and a command/ },
  { title: "a nickname without a command", text: "@daily", problem: /must be a time and a command/ },
  { title: "a comment above", text: "# one\n#two\n* * * * * x", comment: "one\ntwo" },
  { title: "a comment separated by an empty line is ignored", text: "# one\n\n* * * * * x", comment: "" },
  {
    title: "column headings are not a comment",
    text: "# m h  dom mon dow   command\n* * * * * x",
    comment: "",
  },
  { title: "a # in a command stays", text: "* * * * * x # y", command: "x # y" },
  { title: "a variable", text: "A = 'b c'\n* * * * * x", command: "export A='b c'; x" },
  { title: "quotes in a variable", text: `"A"="it's"\n* * * * * x`, command: `export A='it'\\''s'; x` },
  { title: "a variable is not expanded", text: "A=$HOME\n* * * * * x", command: "export A='$HOME'; x" },
  { title: "variables apply from their line on", text: "* * * * * x\nA=1", command: "x" },
  { title: "an assignment in a command is not a variable", text: "0 1 * * * A=1 x", command: "A=1 x" },
  {
    title: "an invalid name of a variable",
    text: "a-b=1\n* * * * * x",
    problem: /"a-b" is not a valid variable name/,
  },
  { title: "MAILTO", text: "MAILTO=a@b\n* * * * * x", command: "x", note: /^MAILTO is ignored/ },
  { title: "PATH", text: "PATH=/bin\n* * * * * x", command: "export PATH='/bin'; x", note: /^PATH is set/ },
  {
    title: "SHELL",
    text: "SHELL=/bin/bash\n* * * * * x 'y'",
    command: `/bin/bash -c 'x '\\''y'\\'''`,
    note: /^SHELL is/,
  },
  { title: "the default shell", text: "SHELL=/bin/sh\n* * * * * x", command: "x" },
  { title: "an odd shell", text: "SHELL=a b\n* * * * * x", command: "'a b' -c 'x'", note: /^SHELL is/ },
  { title: "CRON_TZ", text: "CRON_TZ=Europe/Berlin\n* * * * * x", timeZone: "Europe/Berlin", command: "x" },
  { title: "CRON_TZ that ends", text: "CRON_TZ=Asia/Kolkata\nCRON_TZ=\n* * * * * x", timeZone: "" },
  {
    title: "TZ, which does not move the times",
    text: "TZ=:UTC\n* * * * * x",
    timeZone: "",
    command: "export TZ=':UTC'; x",
    note: /^TZ applies to the commands/,
  },
  {
    title: "CRON_TZ above TZ",
    text: "CRON_TZ=Europe/Berlin\nTZ=UTC\n0 3 * * * x",
    timeZone: "Europe/Berlin",
    command: "export TZ='UTC'; x",
    note: /^TZ applies/,
  },
  { title: "an escaped percent", text: "* * * * * date +\\%F", command: "date +%F" },
  {
    title: "standard input",
    text: "* * * * * cat%a%b c%",
    command: `printf '%s\\n' 'a' 'b c' | /bin/sh -c 'cat'`,
  },
  { title: "a percent at the end", text: "* * * * * cat%", command: "cat" },
  {
    title: "a user",
    text: "0 1 * * * www-data x 'y'",
    withUsers: true,
    command: `runuser -u www-data -- /bin/sh -c 'x '\\''y'\\'''`,
  },
  {
    title: "root as the default user",
    text: "@daily root x",
    withUsers: true,
    trigger: "0 0 * * *",
    command: "x",
  },
  {
    title: "a user without a command",
    text: "0 1 * * * root",
    withUsers: true,
    problem: /a time, a user and a command/,
  },
  {
    title: "an invalid user name",
    text: "0 1 * * * $(id) x",
    withUsers: true,
    problem: /"\$\(id\)" is not a valid user name/,
  },
];

for (const { title, text, problem, note, withUsers = false, ...expected } of cases) {
  test(title, (t) => {
    const { entries, problems, notes } = readCrontab(text, { withUsers, ownUser: "root" });
    if (problem === undefined) t.deepEqual(problems, []);
    else t.regex(problems[0]?.text ?? "", problem);
    if (note === undefined) t.deepEqual(notes, []);
    else t.regex(notes[0]?.text ?? "", note);
    for (const [key, value] of Object.entries(expected)) {
      t.is(entries[0]?.[key as keyof (typeof entries)[0]], value);
    }
  });
}

test("lines are counted as an editor counts them", (t) => {
  const { entries, problems } = readCrontab("\n# x\n@daily a\nbad\n", { withUsers: false, ownUser: "root" });
  t.deepEqual([entries[0]?.line, problems[0]?.line], [3, 4]);
});

test("comments are cut to the limit of a job", (t) => {
  const { entries } = readCrontab(`# ${"x".repeat(2000)}\n@daily a`, { withUsers: false, ownUser: "root" });
  t.is(entries[0]?.comment.length, 1024);
});

for (const [title, command, output] of [
  [
    "variables with quotes and dollars",
    { text: `printf %s "$A"`.replaceAll("%", "\\%"), variables: [["A", `a'b$c"d`]] },
    `a'b$c"d`,
  ],
  ["standard input with quotes", { text: "cat; echo end%it's%$x 100\\%" }, "it's\n$x 100%\nend\n"],
  ["another shell", { text: "echo ${BASH_VERSION:+yes} 'a  b'", shell: "/bin/bash" }, "yes a  b\n"],
  [
    "everything at once",
    { text: "read x; echo $A-$x%1", shell: "/bin/bash", variables: [["A", "2"]] },
    "2-1\n",
  ],
] as const) {
  test(`a real shell receives ${title} as from cron`, async (t) => {
    const { text, ...rest } = command;
    const shell = "shell" in rest ? rest.shell : "/bin/sh";
    const variables = new Map<string, string>("variables" in rest ? rest.variables : []);
    const line = shellCommand({ text, variables, shell });
    t.is((await run("/bin/sh", ["-c", line], { env: { PATH: process.env["PATH"] } })).stdout, output);
  });
}
