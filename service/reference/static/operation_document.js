/**
 * A document of one operation: its path, and the components that it refers to. Swagger UI takes seconds to resolve the
 * references of the whole document, and milliseconds for those of one operation.
 */

/** @typedef {{path: string, method: string, operation: object}} Place */

/**
 * @param {object} whole - the OpenAPI document
 * @param {string} operationId
 * @returns {Place | null}
 */
export function findOperation(whole, operationId) {
  for (const [path, methods] of Object.entries(whole.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (operation.operationId === operationId) return { path, method, operation };
    }
  }
  return null;
}

/**
 * @param {object} whole - the OpenAPI document
 * @param {Place} place
 * @returns {object} an OpenAPI document
 */
export function operationDocument(whole, { path, method, operation }) {
  const components = { securitySchemes: whole.components.securitySchemes };
  const collect = (node) => {
    if (typeof node !== "object" || node === null) return;
    if (typeof node.$ref === "string") {
      const [, , kind, name] = node.$ref.split("/");
      components[kind] ??= {};
      if (!(name in components[kind])) {
        components[kind][name] = whole.components[kind][name];
        collect(components[kind][name]);
      }
    }
    Object.values(node).forEach(collect);
  };
  const shown = withExampleFields(operation);
  collect(shown);
  return { ...whole, tags: [], paths: { [path]: { [method]: shown } }, components };
}

/** Swagger UI fills the fields of a form with its own samples, unless each has an example. */
function withExampleFields(operation) {
  const form = operation.requestBody?.content["multipart/form-data"];
  if (!form) return operation;
  const properties = Object.fromEntries(
    Object.entries(form.schema.properties).map(([name, { default: _, ...schema }]) => [
      name,
      schema.format === "binary" ? schema : { ...schema, example: form.example[name] ?? "" },
    ]),
  );
  const content = { "multipart/form-data": { schema: { ...form.schema, properties } } };
  return { ...operation, requestBody: { ...operation.requestBody, content } };
}
