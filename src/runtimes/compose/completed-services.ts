/** One-shot services that completed before their app's start failed: a retry does not repeat them. */
import type { ContainerRecord } from "../../engine/container-record.ts";
import { printDocument, type RunnableProject } from "./compose-document.ts";
import { oneShotServices } from "./document-services.ts";

interface Completed {
  /** The project of the start: after a change, all its services run again. */
  readonly text: string;
  readonly services: ReadonlySet<string>;
}

export class CompletedServices {
  /** By app whose last start failed. */
  readonly #byApp = new Map<string, Completed>();

  /** The services that a start of this project skips. */
  of(appId: string, { document }: RunnableProject): ReadonlySet<string> {
    const known = this.#byApp.get(appId);
    return known !== undefined && known.text === printDocument(document) ? known.services : new Set();
  }

  /** @param containers of the app after its start @param startedAtMs when the start began */
  note(
    appId: string,
    project: RunnableProject,
    containers: readonly ContainerRecord[],
    startedAtMs: number,
  ): void {
    const oneShots = oneShotServices(project.document);
    if (oneShots.size === 0) return;
    const skipped = this.of(appId, project);
    const isComplete = (service: string): boolean => {
      const own = containers.filter(({ composeService }) => composeService === service);
      const hasEnded = ({ state, exitCode, finishedAtMs = 0 }: ContainerRecord): boolean =>
        state === "exited" && exitCode === 0 && finishedAtMs >= startedAtMs;
      return own.length > 0 && own.every(hasEnded);
    };
    const ended = [...oneShots].filter((service) => skipped.has(service) || isComplete(service));
    this.#byApp.set(appId, { text: printDocument(project.document), services: new Set(ended) });
  }

  forget(appId: string): void {
    this.#byApp.delete(appId);
  }
}
