/** Writes an installed app as files for another engine. */
import type { ExportAppRequestTo } from "../../../gen/svc/v1/values.ts";
import { exportApp } from "../../export/export.ts";
import type { ExportedApp } from "../../export/workload.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import type { AppsContext } from "../apps-context.ts";
import type { AppRecord } from "./app-record.ts";

export interface AppExporterOptions extends Pick<AppsContext, "runnable"> {
  /** Runtimes by the manifest's name for them. */
  byName: ReadonlyMap<string, AppRuntime>;
  /** Where ports of regular users' containers are published that name no address. */
  publishAddress: string;
}

export class AppExporter {
  readonly #options: AppExporterOptions;

  constructor(options: AppExporterOptions) {
    this.#options = options;
  }

  /** @throws SvcError as {@link exportApp} */
  async export(app: AppRecord, to: ExportAppRequestTo): Promise<ExportedApp> {
    const { byName, runnable, publishAddress } = this.#options;
    // The same wherever the app is placed.
    const projects = byName.get(app.runtime)?.projects;
    return exportApp(runnable(app), to, { publishAddress, projects });
  }
}
