/** The numbered steps of installs, upgrades, clones, restores and backups. */
import type { Manifest, Runtime } from "../../packages/manifest/manifest.ts";
import type { StepPlan } from "../../work/step-numbers.ts";

const fetchStep = ["resolve", "fetch"];
const buildStep = ["build", "pull", "secrets"];
const readStep = ["read", "encrypt"];
const backupStep = ["backup", "dump", ...readStep, "after", "push"];

/** The first steps, until the package is known. */
export const firstSteps = {
  install: [fetchStep],
  upgrade: (backup: boolean): StepPlan => [...(backup ? [backupStep] : []), fetchStep],
};

export function installPlan(manifest: Manifest): StepPlan {
  return [fetchStep, ["export"], ...(needsBuild(manifest) ? [buildStep] : [])];
}

export function adoptPlan(manifest: Manifest): StepPlan {
  return [...installPlan(manifest), ["stop"], ["start"], ["health"]];
}

/** @param parts optional steps: a backup before the upgrade, and a trial start of the new version */
export function upgradePlan(manifest: Manifest, parts: { backup: boolean; trial: boolean }): StepPlan {
  return [
    ...(parts.backup ? [backupStep] : []),
    ...installPlan(manifest),
    ...(manifest.migrate === undefined ? [] : [["migrate"]]),
    ...(parts.trial ? [["trial"]] : []),
  ];
}

/** Copies of process apps are built again only if the manifest requires it. */
export function clonePlan(manifest: Manifest): StepPlan {
  return [["copy"], ...(hasImages(manifest.runtime) || manifest.clone === "rebuild" ? [buildStep] : [])];
}

export function restorePlan(manifest: Manifest): StepPlan {
  return [["restore"], ...(hasImages(manifest.runtime) ? [buildStep] : [])];
}

export function backupPlan({ backup }: Manifest): StepPlan {
  const stepOf = (name: "dump" | "after"): string[][] => (backup?.[name] === undefined ? [] : [[name]]);
  return [...stepOf("dump"), readStep, ...stepOf("after"), ["push"]];
}

function needsBuild({ runtime }: Manifest): boolean {
  return hasImages(runtime) || runtime.build.length > 0;
}

function hasImages(runtime: Runtime): runtime is Extract<Runtime, { kind: "docker" | "compose" }> {
  return runtime.kind === "docker" || runtime.kind === "compose";
}
