import { Heading } from "../parts/heading.tsx";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";

/** The view for unknown addresses. */
export function NotFoundView() {
  return (
    <>
      <Heading title={texts.notFound.title} />
      <p>{texts.notFound.explain}</p>
      <p>
        <a href={pathTo("overview")}>{texts.notFound.toOverview}</a>
      </p>
    </>
  );
}
