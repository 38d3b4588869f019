/** Images on the engine by name: reads, names and removes them. */
import type { ImageInspectInfo } from "dockerode";
import type { ContainerRecord } from "../../engine/container-record.ts";
import { unlessGone } from "../../engine/engine-errors.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { SvcError } from "../../errors.ts";
import type { ReplacedImage } from "../capabilities.ts";

const removeTimeoutMs = 60_000;

export class EngineImages {
  readonly #engine: DockerEngine;

  constructor(engine: DockerEngine) {
    this.#engine = engine;
  }

  inspect(reference: string, signal?: AbortSignal): Promise<ImageInspectInfo | undefined> {
    return unlessGone(
      this.#engine.call(`inspect the image ${reference}`, (docker) => docker.getImage(reference).inspect(), {
        signal,
      }),
    );
  }

  /** Rolls back a pull: the names refer to their previous images again. */
  async restoreNames(replaced: readonly ReplacedImage[]): Promise<void> {
    for (const { reference, id } of replaced) {
      const at = reference.lastIndexOf(":");
      const name = { repo: reference.slice(0, at), tag: reference.slice(at + 1) };
      await this.#engine.operate(
        `tag the image ${reference} again`,
        (docker) => docker.getImage(id).tag(name),
        { timeoutMs: removeTimeoutMs },
      );
    }
  }

  /**
   * Removes images of removed containers whose names a repull has moved, because nothing else identifies them. Images
   * of existing containers stay.
   */
  async removeNameless(containers: readonly Pick<ContainerRecord, "image" | "imageId">[]): Promise<void> {
    const named = containers.filter(({ image }) => !image.includes("@"));
    for (const id of new Set(named.map(({ imageId }) => imageId))) {
      const image = await this.inspect(id);
      const tags = image?.RepoTags as string[] | null | undefined;
      if (image !== undefined && (tags ?? []).length === 0) await this.remove(id);
    }
  }

  /** Total size of these images, each counted once; `undefined` if none exists. @param names references or IDs */
  async sizeOf(names: readonly string[], signal?: AbortSignal): Promise<number | undefined> {
    const sizes = new Map<string, number>();
    for (const name of new Set(names)) {
      const image = await this.inspect(name, signal);
      if (image !== undefined) sizes.set(image.Id, image.Size);
    }
    return sizes.size === 0 ? undefined : [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  async remove(name: string): Promise<void> {
    try {
      await this.#engine.operate(`remove the image ${name}`, (docker) => docker.getImage(name).remove(), {
        timeoutMs: removeTimeoutMs,
      });
    } catch (error) {
      // A container of another owner may use the image, or the image may be gone.
      if (!(error instanceof SvcError) || !["not_found", "failed_precondition"].includes(error.code)) {
        throw error;
      }
    }
  }
}
