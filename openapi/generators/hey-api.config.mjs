export default {
  input: process.env.REQUANT_DOCUMENT,
  output: "hey-api",
};
