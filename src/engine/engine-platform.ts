import type { DockerEngine } from "./engine.ts";

export interface EnginePlatform {
  /** Such as `linux`. */
  readonly os: string;
  /** The engine's name, such as `amd64`. */
  readonly architecture: string;
}

/** The platform of the images that the engine runs. @throws SvcError `unavailable` */
export async function platformOf(
  engine: Pick<DockerEngine, "call">,
  signal?: AbortSignal,
): Promise<EnginePlatform> {
  const { Os: os, Arch: architecture } = await engine.call("say its version", (docker) => docker.version(), {
    signal,
  });
  return { os, architecture };
}

/** The directory of the engine's images. @throws SvcError `unavailable` */
export async function imagesDir(engine: Pick<DockerEngine, "call">, signal?: AbortSignal): Promise<string> {
  const info: unknown = await engine.call("describe itself", (docker) => docker.info(), { signal });
  return (info as { DockerRootDir?: string }).DockerRootDir ?? "";
}
