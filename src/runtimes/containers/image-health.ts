/** Health checks of images, which the engine runs unless the container's configuration overrides them. */
import type { ImageInspectInfo } from "dockerode";
import { SvcError } from "../../errors.ts";
import { excessOfHealth } from "./user-bounds.ts";

/** Health check settings of a container that override its image's. */
export interface OwnHealth {
  readonly isOff: boolean;
  readonly hasInterval: boolean;
  readonly hasStartInterval: boolean;
  readonly hasTest: boolean;
}

const nanosecondsPerSec = 1_000_000_000;

/** @throws SvcError `denied` if the image's health check would run too often, or is too long, in a regular user's container */
export function requireSlowChecks(image: ImageInspectInfo, reference: string, own: OwnHealth): void {
  const { Healthcheck: check } = image.Config as { Healthcheck?: HealthConfig | null };
  if (check === undefined || check === null || own.isOff) return;
  const secs = (nanoseconds = 0): number | undefined =>
    nanoseconds > 0 ? nanoseconds / nanosecondsPerSec : undefined;
  const [excess] = excessOfHealth({
    ...(!own.hasInterval && { interval: secs(check.Interval) }),
    ...(!own.hasStartInterval && { startInterval: secs(check.StartInterval) }),
    ...(!own.hasTest && { command: check.Test === undefined ? [] : [...check.Test] }),
  });
  if (excess === undefined) return;
  throw new SvcError(
    "denied",
    `the image ${reference} ${excess}, which only root's own apps may do; set a health check with a longer interval, or build the image with one`,
  );
}

/** A health check in the engine's API. Intervals are in nanoseconds; 0 means the engine's default. */
export interface HealthConfig {
  readonly Test?: readonly string[] | undefined;
  readonly Interval?: number | undefined;
  readonly StartInterval?: number | undefined;
}

/** Health check settings of a container's configuration; the engine takes the rest from the image. */
export function ownHealth(check: HealthConfig = {}): OwnHealth {
  const { Test: test, Interval: interval = 0, StartInterval: startInterval = 0 } = check;
  return {
    ...{ isOff: test?.[0] === "NONE", hasTest: (test ?? []).length > 0 },
    ...{ hasInterval: interval > 0, hasStartInterval: startInterval > 0 },
  };
}
