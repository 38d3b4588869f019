/** Limits of a manifest's durations, which control timers of the daemon and how long users wait. */
import type { ManifestDocument } from "../../../gen/manifest-document.ts";
import type { RuleProblem } from "./rule-problem.ts";
import { parseDuration } from "./quantities.ts";
import type { DocumentPath } from "./yaml-document.ts";

interface Bounded {
  path: DocumentPath;
  text: string | undefined;
  least?: string;
  most: string;
}

export function durationProblems(manifest: ManifestDocument): RuleProblem[] {
  return boundedOf(manifest).flatMap(({ path, text, least = "0s", most }): RuleProblem[] => {
    const ms = text === undefined ? undefined : parseDuration(text);
    if (ms === undefined || (ms >= msOf(least) && ms <= msOf(most))) return [];
    const bounds = least === "0s" ? `at most ${most}` : `${least} to ${most}`;
    return [{ path, message: `${path.join(".")}: ${text} is not ${bounds}` }];
  });
}

function boundedOf({ health, stop, restart, upgrade, ...manifest }: ManifestDocument): Bounded[] {
  const { process, service, migrate, backup } = manifest;
  const steps = [
    ...(process?.build ?? []).map((command, index) => ({ path: ["process", "build", index], command })),
    ...(service?.build ?? []).map((command, index) => ({ path: ["service", "build", index], command })),
    { path: ["migrate"], command: migrate },
    { path: ["backup", "dump"], command: backup?.dump },
    { path: ["backup", "after"], command: backup?.after },
    { path: ["backup", "restore"], command: backup?.restore },
  ];
  return [
    { path: ["health", "start_period"], text: health?.start_period, most: "1d" },
    { path: ["health", "interval"], text: health?.interval, least: "100ms", most: "1h" },
    { path: ["health", "timeout"], text: health?.timeout, least: "1ms", most: "1h" },
    { path: ["stop", "grace"], text: stop?.grace, most: "1h" },
    { path: ["upgrade", "watch"], text: upgrade?.watch, most: "1h" },
    { path: ["restart", "delay"], text: restart?.delay, most: "1d" },
    { path: ["restart", "max_delay"], text: restart?.max_delay, most: "1d" },
    { path: ["restart", "reset_after"], text: restart?.reset_after, most: "7d" },
    ...steps.map(({ path, command }) => ({
      ...{ path: [...path, "timeout"], text: command?.timeout, most: "1d" },
    })),
  ];
}

function msOf(text: string): number {
  return parseDuration(text) ?? 0;
}
