import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "ava";
import { isIgnoredSignal } from "../../src/sys/ignored-signal.ts";

const cases: { name: string; script: string; signal: string; isIgnored: boolean }[] = [
  { name: "has no handler", script: "", signal: "SIGTERM", isIgnored: true },
  { name: "ignores the signal", script: "trap '' TERM;", signal: "SIGTERM", isIgnored: true },
  { name: "handles the signal", script: "trap 'exit 0' TERM;", signal: "SIGTERM", isIgnored: false },
  {
    name: "handles the signal, which is given by its short name",
    script: "trap : TERM;",
    signal: "TERM",
    isIgnored: false,
  },
  {
    name: "handles the signal, which is given by its number",
    script: "trap : TERM;",
    signal: "15",
    isIgnored: false,
  },
  { name: "handles another signal", script: "trap : TERM;", signal: "SIGQUIT", isIgnored: true },
  { name: "handles a real-time signal", script: "trap : RTMIN+3;", signal: "SIGRTMIN+3", isIgnored: false },
  { name: "handles no real-time signal", script: "", signal: "SIGRTMIN+3", isIgnored: true },
  { name: "gets an unknown signal", script: "", signal: "SIGNONE", isIgnored: false },
];

for (const { name, script, signal, isIgnored } of cases) {
  test(`the stop signal has ${isIgnored ? "no" : "an"} effect on a first process that ${name}`, async (t) => {
    const shell = spawn("bash", ["-c", `${script} echo ready; read line`], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const exited = once(shell, "exit");
    await once(shell.stdout, "data");
    t.is(await isIgnoredSignal(shell.pid ?? 0, signal), isIgnored);
    shell.stdin.end("\n");
    await exited;
  });
}

test("no signal counts as ignored by a process that is gone", async (t) => {
  const shell = spawn("true");
  await once(shell, "exit");
  t.false(await isIgnoredSignal(shell.pid ?? 0, "SIGTERM"));
});
