/** Limits of what containers inherit from their image. */
import type { ImageInspectInfo } from "dockerode";
import type { Usage } from "./container-policy.ts";
import { descriptionBytes } from "../../engine/engine-objects.ts";
import { SvcError } from "../../errors.ts";
import { excessOfExposed, excessOfMounts } from "./user-bounds.ts";

interface Lists {
  readonly ExposedPorts?: object | null;
  readonly Volumes?: object | null;
}

/** Properties that exceed the limits of a regular user's image. Each completes "the image …". */
export function excessOfImage({ Config: config }: ImageInspectInfo): string[] {
  const { ExposedPorts: ports, Volumes: volumes } = config as Lists;
  return [
    ...excessOfExposed(Object.keys(ports ?? {})),
    ...excessOfMounts(Object.keys(volumes ?? {}).length, "volumes"),
  ];
}

/** Bytes that an image adds to each of its containers' entries in the engine's list, on top of the app's settings. */
export function usesOfImage({ Config: config }: ImageInspectInfo, containers: number): Usage {
  const { ExposedPorts, Volumes, Labels, Cmd, Entrypoint } = config as Lists & ImageInspectInfo["Config"];
  const inherited = descriptionBytes([ExposedPorts, Volumes, Labels, Cmd, Entrypoint]);
  return { containers: 0, ports: 0, descriptionBytes: inherited * containers };
}

/** @throws SvcError `denied` for an image that a regular user may neither run nor build on */
export function requireBoundedImage(image: ImageInspectInfo, reference: string): void {
  const [excess] = excessOfImage(image);
  if (excess === undefined) return;
  throw new SvcError(
    "denied",
    `the image ${reference} ${excess}, which only root's own apps may have; use an image with fewer`,
  );
}
