/**
 * Compose treats every volume, network and container with the project's name as the project's own: it would pass the
 * volumes of another user's container to a new container of the app. Only objects with svc's proof are used.
 */
import type { ContainerInfo } from "dockerode";
import { composeProjectLabel, type Labels } from "../../engine/attribution.ts";
import { listedName } from "../../engine/container-record.ts";
import { unlessGone } from "../../engine/engine-errors.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { Log } from "../../lib/log.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { isSet, recordOf, textOf } from "./compose-values.ts";

export interface ProjectOwnershipOptions {
  engine: DockerEngine;
  ownership: EngineOwnership;
  log: Pick<Log, "warn">;
}

/**
 * Removes containers that only inherited the project's name from their image, such as those of a build.
 * @throws SvcError `not_possible` if anything else with a name of the project does not belong to the app
 */
export async function requireOwnedParts(
  options: ProjectOwnershipOptions,
  app: Pick<RunnableApp, "id">,
  document: JsonObject,
): Promise<void> {
  const { engine, ownership } = options;
  const project = ownership.projectOf(app.id);
  for (const name of namesOf(project, recordOf(document["volumes"]))) {
    const volume = await unlessGone(
      engine.call(`inspect the volume ${name}`, (docker) => docker.getVolume(name).inspect()),
    );
    if (volume !== undefined && !ownership.isOwn("volume", app.id, { labels: volume.Labels }))
      throw notOwn(app.id, `volume ${name}`);
  }
  for (const name of namesOf(project, { default: null, ...recordOf(document["networks"]) })) {
    const network = (await unlessGone(
      engine.call(`inspect the network ${name}`, (docker) => docker.getNetwork(name).inspect()),
    )) as { Labels?: Labels } | undefined;
    if (network !== undefined && !ownership.isOwn("network", app.id, { labels: network.Labels }))
      throw notOwn(app.id, `network ${name}`);
  }
  await requireOwnContainers(options, app.id, project);
}

async function requireOwnContainers(
  { engine, ownership, log }: ProjectOwnershipOptions,
  appId: string,
  project: string,
): Promise<void> {
  const containers = await engine.call(`list the containers of project ${project}`, (docker) =>
    docker.listContainers({ all: true, filters: { label: [`${composeProjectLabel}=${project}`] } }),
  );
  for (const container of containers) {
    const { Id: id, Names: names, Labels: labels } = container;
    if (ownership.isOwn("container", appId, { labels, names })) continue;
    const name = listedName(container);
    if (!(await isInherited(engine, container, project))) {
      const message = `app "${appId}" cannot start: container ${name} has the label of the app's compose project, ${project}, but does not belong to the app; remove it: docker rm -f ${name}`;
      throw new SvcError("not_possible", message);
    }
    log.warn({ app: appId, container: name }, "removing a container whose image has the labels of an app");
    await unlessGone(
      engine.call(`remove the container ${name}`, (docker) =>
        docker.getContainer(id).remove({ force: true, v: true }),
      ),
    );
  }
}

/**
 * Whether the labels come from the image: someone who creates a container for the project on purpose labels the
 * container.
 */
async function isInherited(
  engine: DockerEngine,
  { ImageID: imageId }: ContainerInfo,
  project: string,
): Promise<boolean> {
  const image = await unlessGone(
    engine.call(`inspect the image ${imageId}`, (docker) => docker.getImage(imageId).inspect()),
  );
  const labels = image?.Config.Labels as Labels | null | undefined;
  return labels?.[composeProjectLabel] === project;
}

function notOwn(appId: string, what: string): SvcError {
  const message = `app "${appId}" cannot start: ${what} exists and does not belong to the app; give yours another "name" in the compose file, or use that one with "external: true"`;
  return new SvcError("not_possible", message);
}

/** Names that compose gives to the project's own parts, without external ones. */
function namesOf(project: string, parts: JsonObject): string[] {
  return Object.entries(parts)
    .map(([key, part]) => [key, recordOf(part)] as const)
    .filter(([, part]) => !isSet(part["external"]))
    .map(([key, part]) => textOf(part["name"]) || `${project}_${key}`);
}
