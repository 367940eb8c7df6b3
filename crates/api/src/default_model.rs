use std::sync::{Arc, OnceLock};

use domain::ModelRef;

/// The model of a session that has chosen none, as clients are told it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DefaultModel {
    model: ModelRef,
    name: Option<Arc<OnceLock<String>>>,
}

impl DefaultModel {
    /// A model whose server has yet to say its name: `placeholder` until then.
    #[must_use]
    pub fn named_later(placeholder: ModelRef, name: Arc<OnceLock<String>>) -> Self {
        Self { model: placeholder, name: Some(name) }
    }

    /// The model, as far as it is known now.
    #[must_use]
    pub fn get(&self) -> ModelRef {
        match self.name.as_ref().and_then(|name| name.get()) {
            Some(name) => ModelRef { model: name.clone(), ..self.model.clone() },
            None => self.model.clone(),
        }
    }
}

impl From<ModelRef> for DefaultModel {
    fn from(model: ModelRef) -> Self {
        Self { model, name: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding cluster 7: a gateway that started before the model server showed `custom/default` for its whole life.
    #[test]
    fn a_server_that_comes_later_gives_the_model_its_name() {
        let (placeholder, name) = (ModelRef::new("custom", "default"), Arc::default());
        let model = DefaultModel::named_later(placeholder.clone(), Arc::clone(&name));
        assert_eq!(model.get(), placeholder);
        name.set("qwen3:8b".to_owned()).expect("once");
        assert_eq!(model.get(), ModelRef::new("custom", "qwen3:8b"));
        assert_eq!(DefaultModel::from(placeholder.clone()).get(), placeholder);
    }
}
