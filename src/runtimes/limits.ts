/** Resource limits of an app, and whether this host enforces them. */
import type { RuntimeLimit } from "./capabilities.ts";
import type { RunnableApp } from "./runnable-app.ts";

/** @param enforces the limits that this host enforces; every host enforces `open_files` */
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
