import { useSignal } from "@preact/signals";
import type { FunctionComponent, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { withRetries } from "../retry.ts";
import { texts } from "../texts.ts";

type PropsOf<Part> = Part extends (props: infer Props extends object) => unknown
  ? Props
  : Record<string, never>;

/** A part of the page that is loaded when it is first shown: `lazily(() => import("./views/x.tsx"), "XView")`. */
export function lazily<Module, Name extends keyof Module>(
  load: () => Promise<Module>,
  name: Name,
): (props: PropsOf<Module[Name]>) => JSX.Element {
  let loaded: FunctionComponent<PropsOf<Module[Name]>> | undefined;
  return function Lazy(props) {
    const failed = useSignal(false);
    const shown = useSignal(loaded !== undefined);
    const begin = (): void => {
      failed.value = false;
      withRetries(load).then(
        ({ [name]: part }) => {
          loaded = part as FunctionComponent<PropsOf<Module[Name]>>;
          shown.value = true;
        },
        () => (failed.value = true),
      );
    };
    useEffect(() => {
      if (loaded === undefined) begin();
    }, []);
    const Part = shown.value ? loaded : undefined;
    if (Part !== undefined) return <Part {...props} />;
    if (!failed.value) return <p>{texts.loading}</p>;
    return (
      <div class="notice bad" role="alert">
        {texts.notLoaded}{" "}
        <button type="button" onClick={begin}>
          {texts.withRetries}
        </button>
      </div>
    );
  };
}
