"""Three clinics that train one model with Fedstein's strategy."""
