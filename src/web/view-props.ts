import type { Api } from "./api.ts";
import type { NodeView } from "./node-view.ts";

/** Properties of every view. */
export interface ViewProps {
  readonly api: Api;
  readonly node: NodeView;
  /** Path segments after the view's name in the address. */
  readonly args: readonly string[];
}
