/** Which container somebody means: an id, a name, or the beginning of an id that only one has. */
import { invalidField, notFound } from "../errors.ts";
import type { ContainerRecord } from "./container-record.ts";

const maxNamed = 5;

/** @throws SvcError `not_found`; `invalid_request` when several ids begin like that */
export function findContainer(containers: readonly ContainerRecord[], wanted: string): ContainerRecord {
  const name = wanted.replace(/^\//, "");
  const exact =
    containers.find(({ id }) => id === wanted) ?? containers.find((container) => container.name === name);
  if (exact !== undefined) return exact;
  const matches = /^[0-9a-f]+$/.test(wanted) ? containers.filter(({ id }) => id.startsWith(wanted)) : [];
  const [match, ...others] = matches;
  if (match === undefined) throw notFound("container", wanted);
  if (others.length === 0) return match;
  const named = matches
    .slice(0, maxNamed)
    .map((container) => `${container.name} (${container.id.slice(0, 12)})`);
  const more = matches.length > maxNamed ? ` and ${matches.length - maxNamed} more` : "";
  throw invalidField(
    "container",
    `"${wanted}" begins the ids of ${named.join(", ")}${more}: give more of it`,
  );
}
