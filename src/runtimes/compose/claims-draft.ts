/** Collects what a part of a compose file requests from the host. */
import { isReservedLabel } from "../../engine/attribution.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import type { Bind, FileOwner } from "../containers/container-policy.ts";
import { listRequirements, type HostRequirement } from "../containers/host-requirements.ts";
import { pairsOf, unknownKeys } from "./compose-values.ts";

/** The claims of a service so far. */
export interface Draft {
  requirements: HostRequirement[];
  binds: Bind[];
  hostPorts: string[];
  fileOwners: FileOwner[];
  excess: string[];
  /** The services of the project. */
  readonly services: JsonObject;
  readonly service: JsonObject;
}

/** Checks the value of a key. */
export type Reader = (value: JsonValue, draft: Draft) => void;

/** Keys that are not in the table of a section. */
export function unknownKeyRequirements(
  part: JsonObject,
  known: readonly string[],
  permission: HostRequirement["permission"] = "privileged",
): HostRequirement[] {
  return unknownKeys(part, known).map((key) => ({ permission, what: `sets "${key}"` }));
}

/** Labels by which svc, compose and the swarm identify the owner of a container, volume or network. */
export function labelRequirements(labels: JsonValue): HostRequirement[] {
  const spoofed = Object.keys(pairsOf(labels)).filter(isReservedLabel);
  return listRequirements(spoofed, "privileged", "sets the label");
}
