/** Output of `ss` and `ps` in svc's format, to compare its responses with. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { basename } from "node:path";
import { promisify } from "node:util";
import type { ListeningPort } from "../../gen/svc/v1/monitor_pb.ts";
import type { Process } from "../../gen/svc/v1/process_pb.ts";

const run = promisify(execFile);
const maxBuffer = 64 * 1024 * 1024;

/** Rows may be equal: the number of equal rows must match, too. */
export type Rows = readonly string[];

/** Protocol, address, port and the holder with the lowest PID, for each listening socket. */
export async function rowsOfSs(): Promise<Rows> {
  const { stdout } = await run("ss", ["-H", "-ltnup"], { maxBuffer });
  const lines = stdout.split("\n").filter((line) => line !== "");
  return lines.map((line) => {
    const [protocol = "", , , , local = ""] = line.trim().split(/\s+/);
    const at = local.lastIndexOf(":");
    const address = local.slice(0, at).replaceAll(/^\[|\]$|%.*$/g, "");
    const pids = [...line.matchAll(/\bpid=(\d+)/g)].map(([, pid]) => Number(pid));
    const holder = pids.length === 0 ? "" : String(Math.min(...pids));
    return `${protocol} ${address === "*" ? "::" : address} ${local.slice(at + 1)} ${holder}`;
  });
}

export function rowsOfPorts(ports: readonly ListeningPort[]): Rows {
  return ports.map(({ protocol, address, port, pid }) => `${protocol} ${address} ${port} ${pid ?? ""}`);
}

/** PID, parent, user and name of each process, including kernel threads. */
export async function rowsOfPs(): Promise<Rows> {
  const { stdout } = await run("ps", ["-e", "-ww", "-o", "pid=,ppid=,euser:64=,comm:64=,args="], {
    maxBuffer,
  });
  const lines = stdout.split("\n").filter((line) => line !== "");
  return lines.map((line) => {
    const [, pid, parent, user, comm = "", program = ""] =
      /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.{64})\s*(\S*)/.exec(line) ?? [];
    const name = comm.trimEnd();
    // Node's name of its main thread does not identify the program; a zombie has no name.
    const isNamedByProgram = name === "MainThread" && program !== "[MainThread]";
    return `${pid} ${parent} ${user} ${isNamedByProgram ? basename(program) : name}`;
  });
}

export function rowsOfProcesses(processes: readonly Process[]): Rows {
  return processes.map(({ pid, parentPid, user, name }) => `${pid} ${parentPid} ${user} ${name}`);
}

/**
 * Other programs start and exit: rows found before and after must be in `ours`, and rows in `ours` must be found before
 * or after.
 */
export function assertBetween(before: Rows, ours: Rows, after: Rows): void {
  const [first, own, last] = [countOf(before), countOf(ours), countOf(after)];
  for (const row of new Set([...before, ...ours, ...after])) {
    const [was, is, will] = [first, own, last].map((counts) => counts.get(row) ?? 0) as [
      number,
      number,
      number,
    ];
    const isBetween = is >= Math.min(was, will) && is <= Math.max(was, will);
    assert.ok(
      isBetween,
      `"${row}" is there ${was} times before, ${will} times after, and ${is} times for svc`,
    );
  }
}

function countOf(rows: Rows): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const row of rows) counts.set(row, (counts.get(row) ?? 0) + 1);
  return counts;
}
