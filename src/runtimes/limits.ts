/** What an app may use at most, and whether that holds here. */
import type { RunnableApp, RuntimeLimit } from "./runtime.ts";

/** @param enforces what this host holds apps to; `open_files` every host does */
export function limitsOf(
  { manifest: { limits } }: RunnableApp,
  enforces: { memory: boolean; cpus: boolean },
): RuntimeLimit[] {
  const all = [
    { name: "memory", value: limits.memoryBytes, enforced: enforces.memory },
    { name: "cpus", value: limits.cpus, enforced: enforces.cpus },
    { name: "open_files", value: limits.openFiles, enforced: true },
  ] as const;
  return all.flatMap(({ value, ...limit }) => (value === undefined ? [] : [{ ...limit, value }]));
}
