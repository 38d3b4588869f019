/** Changes the display name of an app. */
import { SvcError } from "../../errors.ts";
import type { AppsContext } from "../apps-context.ts";
import { patchApp, type AppRecord } from "../records/app-record.ts";

export class Renamer {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /** @throws SvcError `already_exists` if another app of the owner has the name or the ID, `app_busy` */
  async rename({ id }: AppRecord, name: string): Promise<void> {
    const { operations, registry } = this.#options;
    await operations.during({ appId: id, kind: "settings", phase: "rename" }, (operation) => {
      const { ownerUid } = registry.lockedApp(operation);
      const other = registry
        .all()
        .find((app) => app.id !== id && app.ownerUid === ownerUid && [app.name, app.id].includes(name));
      if (other !== undefined) {
        throw new SvcError(
          "already_exists",
          `name "${name}" is taken by app "${other.id}"; choose another one`,
        );
      }
      return Promise.resolve(patchApp(id, { name }));
    });
  }
}
