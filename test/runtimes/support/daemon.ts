/**
 * A daemon in a child process that can be killed: runs each command given as a JSON line on standard input, and
 * responds with a JSON line. `node daemon.ts STORE`.
 */
import { createInterface } from "node:readline";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { Fixture } from "./fixture.ts";

const fixture = await Fixture.create({ store: process.argv[2] ?? "" });
for await (const line of createInterface({ input: process.stdin })) {
  const { start } = JSON.parse(line) as { start: RunnableApp[] };
  await Promise.all(start.map((app) => fixture.runtime.start(app)));
  process.stdout.write(`${JSON.stringify({ started: start.length })}\n`);
}
