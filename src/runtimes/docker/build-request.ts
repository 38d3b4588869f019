/** A build that an app requests. */
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { RuntimeWork } from "../capabilities.ts";
import type { BuildLines } from "./build-output.ts";
import type { BuildSettings } from "./build-settings.ts";
import type { RepeatedBase } from "./dockerfile-metadata.ts";
import type { ChooseEntries } from "./context-entries.ts";
import type { DockerfileSource } from "./dockerfile-source.ts";
import type { BuildBounds } from "./user-builds.ts";

export interface BuildOptions extends RuntimeWork, DockerfileSource {
  /** Reads the context. */
  userHelper: UserHelper;
  chooseEntries: ChooseEntries;
  /** The app's directory, absolute. */
  root: string;
  target?: string | undefined;
  args: Readonly<Record<string, string>>;
  settings?: BuildSettings | undefined;
  /** Name of the image, with a tag. */
  tag: string;
  labels: Readonly<Record<string, string>>;
  /** Finds the image of a name; pulls it if it is missing. */
  base: (reference: string) => Promise<BuildBase>;
  /** Limits of a regular user's build; absent for root's. */
  bounds?: BuildBounds | undefined;
}

export interface BuildBase extends RepeatedBase {
  readonly id: string;
  /** The engine's name of the image, which differs from the Dockerfile's for an image that the app builds. */
  readonly name: string;
  readonly triggers: readonly string[];
  /** Names of the image's labels. */
  readonly labels: readonly string[];
}

/** A build whose Dockerfile was read. */
export interface PreparedBuild extends BuildOptions {
  readonly text: string;
  /** The engine's platform, such as `linux/amd64`. */
  readonly platform: string;
  readonly lines: BuildLines;
  readonly signal: AbortSignal;
}

export const buildTimeoutMs = 60 * 60_000;
