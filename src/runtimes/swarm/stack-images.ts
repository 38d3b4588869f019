/** The images of apps on a swarm, whatever kind of package they are of. */
import type { ImageRuntime, RunnableApp } from "../runtime.ts";

/** @param compose what knows of projects */
export function imagesOfKinds(of: (app: RunnableApp) => ImageRuntime, compose: ImageRuntime): ImageRuntime {
  return {
    needs: (app) => of(app).needs(app),
    image: (app, options) => of(app).image(app, options),
    pull: (app, work) => of(app).pull(app, work),
    // It is the engine's names that are put back, whoever had them.
    putBack: (replaced) => compose.putBack(replaced),
    disk: (app, signal) => of(app).disk(app, signal),
    stacks: (apps) => compose.stacks(apps.filter(({ manifest }) => manifest.runtime.kind === "compose")),
  };
}
