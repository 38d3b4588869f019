import { useSignal } from "@preact/signals";
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { texts } from "../texts.ts";

/** A part of the page that is loaded when it is first shown: `lazily(() => import("./views/x.tsx"), "XView")`. */
export function lazily<Name extends string, Props extends object>(
  load: () => Promise<Readonly<Record<Name, ComponentType<Props>>>>,
  name: Name,
): (props: Props) => JSX.Element {
  let loaded: ComponentType<Props> | undefined;
  return function Lazy(props: Props) {
    const failed = useSignal(false);
    const shown = useSignal(loaded !== undefined);
    useEffect(() => {
      if (loaded !== undefined) return;
      load().then(
        ({ [name]: part }) => {
          loaded = part;
          shown.value = true;
        },
        () => (failed.value = true),
      );
    }, []);
    const Part = shown.value ? loaded : undefined;
    if (Part !== undefined) return <Part {...props} />;
    return failed.value ? <p role="alert">{texts.notLoaded}</p> : <p>{texts.loading}</p>;
  };
}
