import { readFile } from "node:fs/promises";
import { constants } from "node:os";

/** Number of the first real-time signal that a C library leaves to programs (signal(7)). */
const firstRealTime = 34;

/**
 * Whether a signal has no effect on the first process of a PID namespace: the kernel drops signals that this process neither
 * handles nor blocks (pid_namespaces(7)). False if the process or the signal is unknown.
 * @param name as in `SIGTERM`, `TERM`, `15` or `SIGRTMIN+3`
 */
export async function isIgnoredSignal(pid: number, name: string): Promise<boolean> {
  const signal = signalNumber(name);
  if (signal === undefined) return false;
  const status = await readFile(`/proc/${pid}/status`, "latin1").catch(() => "");
  const sets = ["SigCgt", "SigBlk"].map(
    (set) => new RegExp(String.raw`^${set}:\s+([0-9a-f]+)$`, "m").exec(status)?.[1],
  );
  return sets.every((set) => set !== undefined && (BigInt(`0x${set}`) & (1n << BigInt(signal - 1))) === 0n);
}

function signalNumber(name: string): number | undefined {
  if (/^[1-9]\d?$/.test(name)) return Number(name);
  const short = name.toUpperCase().replace(/^SIG/, "");
  const [, plus] = /^RTMIN(?:\+(\d\d?))?$/.exec(short) ?? [];
  if (short.startsWith("RTMIN"))
    return plus === undefined && short !== "RTMIN" ? undefined : firstRealTime + Number(plus ?? 0);
  return (constants.signals as Partial<Record<string, number>>)[`SIG${short}`];
}
