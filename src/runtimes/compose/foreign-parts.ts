/**
 * Compose takes a volume, a network or a container of the right name or project for the project's own. Of two apps they may
 * be the same (`a_b` with the volume `c`, and `a` with `b_c`), and nobody gets at another's data by what they call theirs.
 */
import {
  type Labels,
  appLabel,
  composeProjectLabel,
  composeProjectOf,
  isMadeFor,
} from "../../docker/attribution.ts";
import { listedName } from "../../docker/container-record.ts";
import { unlessGone } from "../../docker/engine-errors.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { RunnableApp } from "../runtime.ts";
import { isSet, recordOf, textOf } from "./compose-values.ts";

export interface ForeignPartsOptions {
  engine: DockerEngine;
  storeId: string;
}

/** @throws SvcError `denied` when something of its names is there and is not the app's */
export async function requireOwnParts(
  { engine, storeId }: ForeignPartsOptions,
  app: Pick<RunnableApp, "id" | "ownerUid">,
  document: JsonObject,
): Promise<void> {
  const require = (what: string, labels: Labels | null | undefined): void => {
    const known = labels ?? {};
    // What was there before svc, root may give to an app of root's.
    const isOwn = isMadeFor(app.id, storeId, known) || (app.ownerUid === 0 && known[appLabel] === undefined);
    if (isOwn) return;
    const message = `${what} is there already and is not of app "${app.id}": call it something else, or install the app under another id`;
    throw new SvcError("not_possible", message);
  };
  for (const name of namesOf(app.id, recordOf(document["volumes"]))) {
    const volume = await unlessGone(
      engine.call(`inspect the volume ${name}`, (docker) => docker.getVolume(name).inspect()),
    );
    if (volume !== undefined) require(`the volume ${name}`, volume.Labels);
  }
  for (const name of namesOf(app.id, { default: null, ...recordOf(document["networks"]) })) {
    const network = await unlessGone(
      engine.call(`inspect the network ${name}`, (docker) => docker.getNetwork(name).inspect()),
    );
    if (network !== undefined) require(`the network ${name}`, (network as { Labels?: Labels }).Labels);
  }
  const label = [`${composeProjectLabel}=${composeProjectOf(app.id)}`];
  const containers = await engine.call(`list the containers of app "${app.id}"`, (docker) =>
    docker.listContainers({ all: true, filters: { label } }),
  );
  for (const each of containers) require(`the container ${listedName(each)}`, each.Labels);
}

/** What compose calls them; not those that are not the project's. */
function namesOf(appId: string, parts: JsonObject): string[] {
  return Object.entries(parts)
    .map(([key, part]) => [key, recordOf(part)] as const)
    .filter(([, part]) => !isSet(part["external"]))
    .map(([key, part]) => textOf(part["name"]) || `${composeProjectOf(appId)}_${key}`);
}
